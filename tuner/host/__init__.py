"""The host side of engines: their environments, sessions and devices, and what is asked of them outside a job."""
