"""Models: upload, routes, page; and models of a single operator."""
