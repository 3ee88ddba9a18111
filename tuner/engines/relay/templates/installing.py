"""Our templates in this process's TVM."""

from __future__ import annotations

from tuner.engines.relay.templates import dispatching

_TEMPLATES: tuple[dispatching.Template, ...] = ()


def install() -> None:
    """A second call changes nothing. Processes that build candidates or compare schedules need it too."""
    for template in _TEMPLATES:
        dispatching.add(template)
