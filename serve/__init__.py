"""Starts a whole service on one machine, and examines one. Above ``api`` and ``worker``."""
