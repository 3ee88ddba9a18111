"""Libraries of several sizes, linked from the parts that builds of the sizes left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import compiling, faults, libraries
from tuner.engines.runtime.compiling import Tools
from tuner.engines.runtime.library import kernels, linking, parts, sizes, source
from tuner.engines.runtime.library import operators as ort
from tuner.engines.runtime.library.parts import Part
from tuner.engines.runtime.library.plan import NotStandalone, Plan
from tuner.engines.runtime.library.sizes import Dimension, Sizes

FORMATS = ("shared", *compiling.WITHOUT_TVM)


def join(params: Json, programs: Callable[[int], Tools]) -> Json:
    """Answer a ``join`` request; ``programs(threads)`` returns the target's tools.

    Raises EngineFailure ``invalid_bundle`` for damaged parts, ``compile_failed`` for parts that do not fit together or
    do not link, ``invalid_option``, and as ``programs`` does.
    """
    faults.require_known("format", params["format"], FORMATS)
    if not params["parts"]:
        raise EngineFailure("invalid_option", "a library needs at least one part")
    with tempfile.TemporaryDirectory(prefix="tunesmith-parts-") as scratch:
        found = [
            parts.read(Path(each["path"]), Path(scratch, str(number))) for number, each in enumerate(params["parts"])
        ]
        try:
            return _join(params, found, programs)
        except (NotStandalone, sizes.NotJoinable) as error:
            raise EngineFailure("compile_failed", f"the sizes cannot become one library: {error}") from error


def _join(params: Json, found: Sequence[Part], programs: Callable[[int], Tools]) -> Json:
    plans = [sizes.align(each.plan, found[0].plan) for each in found]
    facts = _facts(params, found)
    described = _described(params, plans) if len(plans) > 1 else None
    asked = [Dimension(**each) for each in params["dimensions"]]
    served = (
        described.dimensions if described else [Dimension(name=each.name, splits=False, pads=False) for each in asked]
    )
    entries = [
        linking.Entry(name=each["name"] if described else "main", plan=plan, objects=part.objects)
        for each, plan, part in zip(params["parts"], plans, found, strict=True)
    ]
    packed = source.weights(constant for plan in plans for constant in plan.constants)
    tools = programs(facts.threads)
    files = _link(entries, packed, described, facts, Path(params["out_dir"]), tools, params["format"])
    return {
        "files": files,
        "weight_bytes": packed.size,
        "separate_weight_bytes": sum(part.weight_bytes for part in found),
        "exact": [now.name for now, before in zip(served, asked, strict=True) if now.is_exact and not before.is_exact],
    }


def _facts(params: Json, found: Sequence[Part]) -> source.Facts:
    """Return the facts of the library. Raises NotJoinable for parts of different threads."""
    threads = sorted({part.facts.threads for part in found})
    if len(threads) > 1:
        raise sizes.NotJoinable(f"the parts were tuned for different numbers of threads: {threads}")
    return source.Facts(
        model=params.get("model_digest") or "",
        toolchain="; ".join(dict.fromkeys(part.facts.toolchain for part in found)),
        target=params["target"],
        threads=threads[0],
        features=tuple(dict.fromkeys(feature for part in found for feature in part.facts.features)),
    )


def _described(params: Json, plans: Sequence[Plan]) -> Sizes:
    return sizes.describe(
        plans,
        [Dimension(**each) for each in params["dimensions"]],
        [each["values"] for each in params["parts"]],
        [each["seconds"] for each in params["parts"]],
        params["inputs"],
        params.get("padding") or {},
    )


def _link(
    entries: Sequence[linking.Entry],
    packed: source.Weights,
    described: Sizes | None,
    facts: source.Facts,
    folder: Path,
    programs: Tools,
    form: str,
) -> list[str]:
    if programs.c_compiler is None:
        raise programs.missing()
    if len(entries) > 1 and programs.objcopy is None:
        raise programs.archiver_missing()
    folder.mkdir(parents=True, exist_ok=True)
    for name in libraries.WRITTEN:
        (folder / name).unlink(missing_ok=True)
    binutils = None
    if programs.objcopy:
        binutils = linking.Binutils(ar=programs.archiver or "", objcopy=programs.objcopy)
    is_archived = form == compiling.STATIC
    written = linking.link_all(
        entries, packed, described, facts, folder, programs.c_compiler, binutils, is_archived=is_archived
    )
    if len(entries) == 1:
        kernels.write(entries[0].plan, folder)
    if form == compiling.ONNX:
        written += ort.write(entries[0].plan, described, facts, folder, programs.c_compiler)
    return written
