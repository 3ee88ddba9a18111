"""What a worker does with one claimed job, stage by stage."""
