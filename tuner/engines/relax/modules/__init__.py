"""Tensor functions given as TVM IRModule JSON: text that anybody may have written, admitted as data."""
