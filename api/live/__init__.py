"""What is told again and again while a job runs: its events and its status."""
