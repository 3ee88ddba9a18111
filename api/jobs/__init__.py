"""Jobs: what a request says and whether it fits together, plans, routes, events and pages."""
