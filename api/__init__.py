"""The HTTP API: models, jobs, artifacts and the fleet, over REST and server-sent events."""
