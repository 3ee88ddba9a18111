"""Sandbox of engines, which process untrusted models: limits, no credentials, and as little access as the kernel
permits.

``limits`` is the host's side; the other modules run between the host's fork and the engine's first line.
"""
