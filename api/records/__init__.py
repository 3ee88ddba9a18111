"""Records: import, export and queries."""
