"""Ansor (``tvm.auto_scheduler``).

Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning", OSDI 2020.
"""
