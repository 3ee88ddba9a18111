"""Which bundle to take: the best there is, unless a lock file says what it must not be worse than."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tunesmith import errors
from tunesmith.artifacts import Artifact
from tunesmith.client import Client
from tunesmith.lockfile import Entry, Question

NATIVE, NONE = "native", "none"
_LOOKED_AT = 500
_TOLD = 5


@dataclass(frozen=True, kw_only=True)
class Found:
    artifact: Artifact
    faster_elsewhere: Artifact | None = None
    """What is faster but with another toolchain or on another device than the locked one."""


def best(client: Client, question: Question, *, toolchain: str | None, held: Entry | None) -> Found:
    """The best answer; with ``held``, that of its device and runtime, which alone can be compared and take its place.

    ``toolchain`` is the caller's own wish and goes before. Raises LockNotKept (``artifact_missing``) when there was an
    answer and is none any more, NotFound when there never was one; both tell what there is instead.
    """
    if held is None:
        try:
            return Found(artifact=_ask(client, question, toolchain=toolchain))
        except errors.NotFound as error:
            if error.code != errors.ARTIFACT_NOT_FOUND:
                raise
            raise _not_found(client, question, toolchain, error) from error
    runtime = toolchain or held.runtime
    alike = replace(
        question,
        # Which CPU "native" is depends on the workers that happen to live.
        target=held.built_for if question.target == NATIVE else question.target,
        device=question.device or held.device_key,
    )
    try:
        artifact = _ask(client, alike, toolchain=runtime)
    except errors.NotFound as error:
        if error.code != errors.ARTIFACT_NOT_FOUND:
            raise
        way_out = _way_out(client, question, toolchain, locked=True)
        raise _gone(_none(alike, runtime), held, _instead(client.artifacts(model=question.model)), way_out) from error
    return Found(artifact=artifact, faster_elsewhere=_faster(client, question, toolchain, artifact))


def _faster(client: Client, question: Question, toolchain: str | None, than: Artifact) -> Artifact | None:
    any_one = _any(client, question, toolchain)
    return any_one if any_one and any_one.id != than.id and _seconds(any_one) < _seconds(than) else None


def _any(client: Client, question: Question, toolchain: str | None) -> Artifact | None:
    try:
        return _ask(client, question, toolchain=toolchain)
    except errors.RequestRejected:  # such as for "native" where no worker lives
        return None


def slower_by(held: Entry, now: Entry) -> float | None:
    """0.05 is 5 % more time than the locked one takes; None where one of them was never timed."""
    if held.median_seconds is None or now.median_seconds is None:
        return None
    return now.median_seconds / held.median_seconds - 1.0


def check_speed(held: Entry, now: Entry, limit: float) -> None:
    """Compare with the locked bundle.

    Raises LockNotKept (``artifact_slower``) beyond ``limit``, and InvalidInput where the locked one was never timed.
    """
    if held.sha256 == now.sha256:
        return  # whatever it takes, it takes no more than itself
    slower = slower_by(held, now)
    if held.median_seconds is None:
        raise errors.InvalidInput(
            f"the lock file has no median_seconds of {held.artifact}, so nothing can be compared with it",
            code="invalid_lock",
            hint="Take the committed file back, or accept what is best now with --update.",
        )
    if slower is None:
        raise errors.LockNotKept(
            f"{now.artifact} was never timed, so nothing says that it is not slower than the locked one",
            code="artifact_slower",
            hint="Keep to the locked one with --frozen, or accept it with --update.",
            details={"locked": asdict(held), "now": asdict(now), "slower_by": None},
        )
    if slower > limit:
        raise errors.LockNotKept(
            f"the best bundle is {compared(slower)} than the locked one; {100 * limit:g} % is allowed",
            code="artifact_slower",
            hint="Tune again (tunesmith tune), keep to the locked one with --frozen, or accept it with --update.",
            details={"locked": asdict(held), "now": asdict(now), "slower_by": slower},
        )


def compared(slower: float) -> str:
    """``5.0 % slower``: in time, so that 50 % faster is half of it."""
    return f"{100 * abs(slower):.1f} % {'slower' if slower > 0 else 'faster'}" if slower else "as fast"


def changes(held: Entry, now: Entry | None) -> list[tuple[str, str, str]]:
    """What differs, as name, old and new; latency and artifact always."""
    pairs = [
        ("latency", _latency(held), _latency(now) if now else NONE),
        ("toolchain", held.toolchain, now.toolchain if now else NONE),
        ("device", held.device_key, now.device_key if now else NONE),
        ("built for", held.built_for, now.built_for if now else NONE),
        ("artifact", held.artifact, now.artifact if now else NONE),
    ]
    return [(name, old, new) for name, old, new in pairs if old != new or name in ("latency", "artifact")]


def _ask(client: Client, question: Question, *, toolchain: str | None) -> Artifact:
    return client.best(
        question.model,
        target=question.target,
        device=question.device,
        toolchain=toolchain,
        precision=question.precision,
        input_shapes=question.input_shapes,
    )


def _not_found(client: Client, question: Question, toolchain: str | None, error: errors.NotFound) -> errors.NotFound:
    instead = _instead(client.artifacts(model=question.model))
    way_out = _way_out(client, question, toolchain, locked=False) if toolchain or question.device else None
    hint = _hint(instead, way_out) if instead else error.hint
    details = {**error.details, "instead": instead}
    return errors.NotFound(_none(question, toolchain), code=error.code, hint=hint, details=details, status=error.status)


def _gone(none: str, held: Entry, instead: list[str], way_out: str) -> errors.LockNotKept:
    return errors.LockNotKept(
        f"{none}; the lock file holds {held.artifact}",
        code="artifact_missing",
        hint=_hint(instead, way_out),
        details={"locked": asdict(held), "instead": instead},
    )


def _hint(instead: list[str], way_out: str | None) -> str:
    there = f"There is {'; '.join(instead)}." if instead else None
    return " ".join(part for part in (there, way_out) if part)


def _way_out(client: Client, question: Question, toolchain: str | None, *, locked: bool) -> str:
    """Only what would find one is named: what there is may be of another precision, target or shape."""
    if locked and (found := _any(client, question, toolchain)):
        return f"Take the best that fits, {found.id}, with --update."
    named = [option for option, value in (("--toolchain", toolchain), ("--device", question.device)) if value]
    found = _any(client, replace(question, device=None), None) if named else None
    if found is None:
        return "Tune the model again: tunesmith tune."
    update = "use --update and " if locked else ""
    return f"To take {found.id}, {update}leave {' and '.join(named)} out; or tune the model for what was asked for."


def _none(question: Question, toolchain: str | None) -> str:
    by = f" by {toolchain}" if toolchain else ""
    on = f" on {question.device}" if question.device else ""
    shaped = f" with {_shapes(question.input_shapes)}" if question.input_shapes else ""
    return f"there is no verified {question.precision} bundle of this model for {question.target}{shaped}{by}{on}"


def _shapes(shapes: Mapping[str, Sequence[int]]) -> str:
    return " ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in sorted(shapes.items()))


def _instead(artifacts: Iterable[Artifact]) -> list[str]:
    """The fastest of each kind, in words, the fastest first."""
    fastest: dict[tuple[str, ...], Artifact] = {}
    for artifact in itertools.islice(artifacts, _LOOKED_AT):
        kind = (artifact.target, artifact.device_key, artifact.toolchain, artifact.data["precision"])
        if kind not in fastest or _seconds(artifact) < _seconds(fastest[kind]):
            fastest[kind] = artifact
    return [_in_words(each) for each in sorted(fastest.values(), key=_seconds)[:_TOLD]]


def _in_words(artifact: Artifact) -> str:
    data = artifact.data
    shapes = _shapes(data["input_shapes"])
    median = artifact.median_seconds
    parts = [
        f"{artifact.id}: {data['precision']} for {artifact.target}",
        f"by {artifact.toolchain} on {artifact.device_key}",
        *([f"for {shapes}"] if shapes else []),
        f"{median * 1e3:.3f} ms" if median is not None and data["verified"] else "not verified",
    ]
    return ", ".join(parts)


def _seconds(artifact: Artifact) -> float:
    median = artifact.median_seconds
    return median if median is not None and artifact.data["verified"] else float("inf")


def _latency(entry: Entry) -> str:
    return "never timed" if entry.median_seconds is None else f"{entry.median_seconds * 1e3:.3f} ms"
