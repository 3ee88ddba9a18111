"""Access tokens and browser logins."""
