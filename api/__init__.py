"""The HTTP face of the service: models, jobs, artifacts and the fleet, over REST and server-sent events."""
