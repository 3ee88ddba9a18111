"""Models as libraries that need nothing but libc: the plan of calls, its memory, and the C program around them.

An engine reads the executable that TVM made into a ``plan.Plan``; ``linking.link`` writes it as C tables and links
these with the kernels' object files and the driver in ``c/``, whose interface is ``c/tunesmith.h``.
"""
