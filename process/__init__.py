"""Setup of all processes of the service: settings, logs, traces, signatures."""
