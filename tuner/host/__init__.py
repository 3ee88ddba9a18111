"""The host side of engines: environments, sessions, devices, and requests outside of jobs."""
