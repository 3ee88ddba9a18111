"""What decides which tuning tasks an engine finds, as one digest: who has it needs no engine to plan a job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from domain.jobs import Precision, Tuner, TunerOptions
from domain.release import VERSION
from domain.targets import Target, Toolchain

_DECIDING_OPTIONS = ("keep_layout", "layout")
"""The fields of ``TunerOptions`` that change what a task is or how large its space is; the rest steer the search."""


def key_of(
    *,
    model_digest: str,
    input_shapes: Mapping[str, Sequence[int]],
    target: Target,
    toolchain: Toolchain,
    tuner: Tuner,
    precision: Precision,
    rewrite: bool,
    options: TunerOptions,
    plugins: Sequence[str] = (),
) -> str:
    """sha256, hex. ``tuner`` is one that an engine has, never ``auto``; ``plugins`` are the engine's own words of them.

    ``model_digest`` is that of the very file that an engine is given; or of the uploaded model, for what is to be found
    before anybody has prepared and rewritten it. ``rewrite`` is the build's parameter of that name.
    A new release of ours may extract differently: it finds nothing that another one stored.
    """
    deciding = {
        "release": VERSION,
        "model": model_digest,
        "shapes": {name: list(shape) for name, shape in input_shapes.items()},
        "target": target.identity,
        "toolchain": toolchain.identity,
        "tuner": tuner.value,
        "precision": precision.value,
        "rewrite": rewrite,
        "options": {name: getattr(options, name) for name in _DECIDING_OPTIONS},
        "plugins": sorted(plugins),
    }
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()
