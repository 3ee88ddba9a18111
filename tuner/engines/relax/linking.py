"""Programs of this machine that make libraries for a target."""

from __future__ import annotations

from typing import Any

from tvm.support import cc

from tuner.engines.protocol import linking
from tuner.engines.protocol.linking import Tools, pack

__all__ = ["Tools", "pack", "tools"]


def tools(target: Any) -> Tools:
    """As ``tuner.engines.protocol.linking.tools``."""
    return linking.tools(target, cc)
