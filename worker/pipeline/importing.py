"""Stage ``import``: static shapes, folded constants, and whether the engine can import what is left."""

from __future__ import annotations

from dataclasses import asdict

from worker.pipeline.work import PREPARED, Outcome, Work

_CHECK_SECONDS = 600.0


def run(work: Work) -> Outcome:
    """Raises InvalidModel, UnsupportedOperators, ShapeRequired, ShapeMismatch, EngineError."""
    final = work.folder / PREPARED
    partial = work.folder / f"partial-{PREPARED}"
    original = work.blobs.path(work.model.digest)
    prepared = work.engines.prepare(original, work.request.input_shapes, partial)
    partial.replace(final)
    work.keeper.check()
    work.ask(work.relay(), "check", {"model": str(final)}, timeout=_CHECK_SECONDS)
    return {
        "files": [PREPARED],
        "inputs": [asdict(spec) for spec in prepared.inputs],
        "outputs": [asdict(spec) for spec in prepared.outputs],
        "operators": prepared.operators,
        "folded": prepared.folded,
    }
