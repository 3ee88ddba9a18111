"""``tunesmith doctor``: checks of everything that the service needs."""
