"""Artifacts: routes only. Their pages are those of jobs and models."""
