"""Deliveries of webhooks."""
