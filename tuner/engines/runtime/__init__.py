"""Code shared by the engines: build and measure processes, the RPC session pool and request handling.

Runs inside engine environments only and is never imported by the host. It does not import TVM: an engine passes in the
differences between releases as a ``compiling.Release``.
"""
