"""Uploaded networks: upload, routes, page; and models of one operator."""
