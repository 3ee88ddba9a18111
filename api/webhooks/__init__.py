"""Deliveries of a job's webhook."""
