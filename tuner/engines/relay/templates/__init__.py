"""AutoTVM templates that supplement TVM's own, and their installation."""

from __future__ import annotations

from tuner.engines.relay.templates import dispatching, grouped, joining, winograd


def install() -> None:
    """Install all templates; idempotent. Processes that build candidates or compare schedules need them too."""
    joining.install()
    for template in (grouped.TEMPLATE, winograd.TEMPLATE):
        dispatching.add(template)
