"""Tokens, and the login of browsers."""
