"""Workers, devices, targets and engines."""
