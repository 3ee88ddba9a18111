"""Engine for TVM 0.27: imports ONNX through Relax, compiles, tunes with MetaSchedule, runs and times."""
