"""Installation of our templates in this process's TVM."""

from __future__ import annotations

from tuner.engines.relay.templates import (
    bf16_batch_matmul,
    byte_layouts,
    byte_products,
    dispatching,
    grouped,
    joining,
    narrow_conv2d,
    narrow_dense,
    winograd,
)

_TEMPLATES: tuple[dispatching.Template, ...] = (
    bf16_batch_matmul.TEMPLATE,
    narrow_conv2d.BF16,
    narrow_conv2d.BYTES,
    narrow_dense.BF16,
    narrow_dense.BYTES,
    grouped.TEMPLATE,
    winograd.TEMPLATE,
)


def install() -> None:
    """Install all templates; idempotent. Processes that build candidates or compare schedules need them too."""
    byte_products.install()
    byte_layouts.install()
    joining.install()
    for template in _TEMPLATES:
        dispatching.add(template)
