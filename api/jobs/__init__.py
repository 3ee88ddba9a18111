"""What a request for a job says, what of it fits together, and what it becomes."""
