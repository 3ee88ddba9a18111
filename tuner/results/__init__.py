"""What became of a search: verified, timed, compared and bundled."""
