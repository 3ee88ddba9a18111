"""Tensor functions uploaded as TVM IRModule JSON: untrusted text, handled as data."""
