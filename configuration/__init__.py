"""How settings are read, the same for every part of the service."""
