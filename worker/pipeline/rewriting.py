"""The prepared model once more, rewritten for tuned builds: the same function, of operators that compilers do well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from domain import errors
from tuner.inspection import Rewritten
from worker.engines import REFERENCE
from worker.pipeline.work import CHECK_SECONDS, Work

_REWRITE_SECONDS = 900.0
_SAID = {
    "lines": ("convolution", "turned along its line", "turned along their lines"),
    "groups": ("grouped convolution", "padded to whole vectors", "padded to whole vectors"),
    "transposed": ("transposed convolution", "made a plain one", "made plain ones"),
    "aligned": ("layer", "padded to whole vectors", "padded to whole vectors"),
}
"""What a rewriting changed, and what it did to one of them and to several."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    files: list[str] = field(default_factory=list)
    """Relative to the work folder."""
    applied: dict[str, int] = field(default_factory=dict)
    """Places that each rewriting changed."""
    engines: list[str] = field(default_factory=list)
    """Those that import the rewritten model."""
    choice: list[str] = field(default_factory=list)
    """Sentences for the report."""


def rewrite(work: Work, engines: Sequence[str], lanes: int | None) -> Outcome:
    """For vectors of so many 32-bit lanes. A model that cannot be rewritten is tuned as it is.

    Raises LeaseLost.
    """
    work.rewritten.unlink(missing_ok=True)
    if not work.rewrites or lanes is None:
        return Outcome()
    partial = work.rewritten.with_name(f"partial-{work.rewritten.name}")
    params = {"path": str(work.prepared), "lanes": lanes, "out_path": str(partial)}
    try:
        answer = work.ask(work.engines.get(REFERENCE), "rewrite", params, timeout=_REWRITE_SECONDS)
    except errors.TunesmithError as error:
        work.keeper.check()
        work.note(f"the model could not be rewritten for tuning: {error.message[:500]}")
        return Outcome()
    made = Rewritten.of(answer, partial)
    for name, reason in made.undone.items():
        work.note(f"the rewriting {name!r} of the model is undone: {reason[:500]}")
    if made.path is None:
        return Outcome()
    made.path.replace(work.rewritten)
    told = f"rewritten for tuning: {said(made.applied)}"
    work.note(told)
    return Outcome(
        files=[work.rewritten.name],
        applied=made.applied,
        engines=[name for name in engines if _imports(work, name)],
        choice=[f"The model was {told}."],
    )


def _imports(work: Work, engine: str) -> bool:
    """Whether the engine imports the rewritten model."""
    try:
        work.ask(work.compiler(engine), "check", {"model": str(work.rewritten)}, timeout=CHECK_SECONDS)
    except errors.TunesmithError as error:
        work.keeper.check()
        work.note(f"the {engine} engine cannot import the rewritten model, and tunes the other: {error.message[:500]}")
        return False
    return True


def said(applied: Mapping[str, int]) -> str:
    """The user's words for what rewritings did."""
    return ", ".join(_said(name, count) for name, count in applied.items())


def _said(name: str, count: int) -> str:
    noun, once, often = _SAID.get(name, ("place", f"by {name}", f"by {name}"))
    return f"{count} {noun} {once}" if count == 1 else f"{count} {noun}s {often}"
