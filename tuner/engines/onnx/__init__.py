"""Engine for ONNX Runtime: reads and prepares models, runs the reference and compares results with it."""
