"""``tunesmith doctor``: each thing that the service needs, tried out and told of."""
