"""What people write by hand with TVM, run with an engine environment's interpreter: the benchmarks' other side."""
