"""Runs TVM 0.19: imports ONNX through Relay, compiles, tunes with AutoTVM, runs and times. The only home of ``tvm``."""
