"""Replacement of operators that few compilers support by plain ones: quantized operators and recurrent layers.

Done once, when a model is prepared, for all engines.
"""
