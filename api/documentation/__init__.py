"""The OpenAPI document, and the reference that is made of it."""
