"""Data sets: upload, routes and page."""
