"""Engine for TVM 0.19: imports ONNX through Relay, compiles, tunes with AutoTVM and Ansor, runs and times."""
