"""What clients ask for again and again while a job runs: its events and its status."""
