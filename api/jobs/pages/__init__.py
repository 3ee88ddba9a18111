"""The pages about jobs: all, one, several side by side, and the form for a new one."""
