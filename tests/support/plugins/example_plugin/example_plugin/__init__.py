"""A plugin as somebody else would write it: operators of ``example.domain``.

``Wave`` is amplitude × sin(data · weight); ``Relu``, not to be taken for ONNX's, is tanh(x) ÷ 2; ``Halves`` has two
outputs, max(x, 0) and max(−x, 0).
"""

from __future__ import annotations

from typing import Any

__version__ = "1.0"


def register(registry: Any) -> None:
    """Each engine calls this when it starts; their TVMs differ, so each gets a module of its own."""
    if registry.engine == "relay":
        from . import relay_operators

        relay_operators.register(registry)
    elif registry.engine == "relax":
        from . import relax_operators

        relax_operators.register(registry)
