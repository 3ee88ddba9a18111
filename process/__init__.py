"""What every process of the service sets up before it works: settings, logs, traces, signatures."""
