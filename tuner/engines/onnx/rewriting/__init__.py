"""Rewriting of ONNX models as equivalent models that compilers optimize better."""
