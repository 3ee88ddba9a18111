"""Runs ONNX Runtime: reads and prepares models, runs the reference and compares arrays with it."""
