"""Installation of our templates in this process's TVM."""

from __future__ import annotations

from tuner.engines.relay.templates import (
    bf16_batch_matmul,
    bf16_conv2d,
    bf16_dense,
    byte_dense,
    byte_products,
    dispatching,
    grouped,
    joining,
    winograd,
)

_TEMPLATES: tuple[dispatching.Template, ...] = (
    bf16_batch_matmul.TEMPLATE,
    bf16_conv2d.TEMPLATE,
    bf16_dense.TEMPLATE,
    byte_dense.TEMPLATE,
    grouped.TEMPLATE,
    winograd.TEMPLATE,
)


def install() -> None:
    """Install all templates; idempotent. Processes that build candidates or compare schedules need them too."""
    byte_products.install()
    joining.install()
    for template in _TEMPLATES:
        dispatching.add(template)
