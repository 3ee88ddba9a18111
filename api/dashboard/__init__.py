"""The dashboard: pages for people, rendered on the server, that show what the REST routes answer."""
