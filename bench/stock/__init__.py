"""Plain TVM programs as users write them, run by an engine environment's interpreter: the baseline of benchmarks."""
