"""Rewrites models, ONNX into ONNX, into networks of the same function that compilers make more of."""
