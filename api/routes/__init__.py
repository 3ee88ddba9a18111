"""The endpoints, one file a noun. Each parses, calls, serialises, and owns its transaction."""
