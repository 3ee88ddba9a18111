"""Shared parts of the dashboard: templates, static files, number formats and error pages."""
