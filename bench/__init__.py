"""Benchmarks and the demo: programs that use the service as its users do."""
