"""Published bundles: ``routes`` alone; their pages are those of jobs and models."""
