"""The OpenAPI document, and the reference generated from it."""
