"""Jobs: requests and their validation, plans, routes, events and pages."""
