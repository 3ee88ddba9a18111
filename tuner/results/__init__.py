"""Results of a search: verification, timing, comparison and bundle."""
