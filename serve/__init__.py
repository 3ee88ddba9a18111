"""Start and diagnosis of a whole service on one machine; above ``api`` and ``worker``."""
