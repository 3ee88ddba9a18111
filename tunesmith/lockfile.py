"""``tunesmith.lock``: which bundle a project took for which question, so that the same is taken tomorrow.

TOML, one ``[[artifact]]`` table for each question (model, target, device, precision, shapes), sorted, so that a commit
shows what changed and two branches rarely touch the same lines. And how ``pull`` finds the best bundle, or says why
there is none.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from tunesmith import errors
from tunesmith.artifacts import Artifact
from tunesmith.client import Client

try:
    import fcntl
except ImportError:  # where there are no such locks, two who put entries at once are not told apart
    fcntl = None  # type: ignore[assignment]

VERSION = 1
_TEXTS = ("model", "target", "precision", "artifact", "sha256", "built_for", "device_key", "toolchain")
_NUMBERS = (
    "bytes",
    "median_seconds",
    "speedup_over_untuned",
    "speedup_over_reference",
    "max_abs_error",
    "max_rel_error",
)
_HEAD = "# Written by `tunesmith pull --lock`. Commit it; `tunesmith pull` changes it.\n"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What was asked for, in the caller's words."""

    model: str
    """sha256 of the model's bytes."""
    target: str
    device: str | None = None
    precision: str = "f32"
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return json.dumps([self.model, self.target, self.device or "", self.precision, _plain(self.input_shapes)])


@dataclass(frozen=True, kw_only=True)
class Entry(Question):
    """The answer that was taken."""

    artifact: str
    sha256: str
    """Of the bundle's bytes."""
    bytes: int
    built_for: str
    """Target with its thread count."""
    device_key: str
    toolchain: str
    median_seconds: float | None = None
    """Of a run; None of what nobody could run."""
    speedup_over_untuned: float | None = None
    speedup_over_reference: float | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    """Largest of any output against the reference; relative to the output's largest value."""
    job: str | None = None

    @classmethod
    def of(cls, question: Question, artifact: Artifact) -> Self:
        report = artifact.report
        checked = report["verifications"].get(report["published"], {"outputs": []})["outputs"]
        return cls(
            model=question.model,
            target=question.target,
            device=question.device,
            precision=question.precision,
            input_shapes=_plain(question.input_shapes),
            artifact=artifact.id,
            sha256=artifact.digest,
            bytes=artifact.size_bytes,
            built_for=artifact.target,
            device_key=artifact.device_key,
            toolchain=artifact.toolchain,
            median_seconds=_rounded(artifact.median_seconds),
            speedup_over_untuned=_rounded(report["speedup_over_untuned"]),
            speedup_over_reference=_rounded(report["speedup_over_reference"]),
            max_abs_error=_rounded(max((output["max_abs"] for output in checked), default=None)),
            max_rel_error=_rounded(max((output["max_rel"] for output in checked), default=None)),
            job=artifact.data["job_id"],
        )

    @property
    def runtime(self) -> str:
        """What loads the bundle: the toolchain without the compiler beneath it."""
        return "/".join(self.toolchain.split("/")[:2])


def read(path: Path) -> dict[str, Entry]:
    """Entries by their questions' keys; none where there is no file yet. Raises InvalidInput for any other file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(path, str(error)) from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(path, str(error)) from error
    if document.get("version") != VERSION:
        raise _wrong(path, f"its version is {document.get('version')!r}, not {VERSION}")
    try:
        entries = [_entry(table) for table in document.get("artifact", [])]
    except (TypeError, ValueError, AttributeError) as error:
        raise _wrong(path, str(error)) from error
    return {entry.key: entry for entry in entries}


def put(path: Path, entry: Entry) -> None:
    """Add or replace one entry, beside those that others put in at the same time. Raises InvalidInput."""
    with _alone(path.absolute().parent):
        write(path, {**read(path), entry.key: entry})


def write(path: Path, entries: Mapping[str, Entry]) -> None:
    """Wholly or not at all, and not at all when it says that already. Raises InvalidInput."""
    text = "\n".join([_HEAD + f"version = {VERSION}\n", *(_table(entries[key]) for key in sorted(entries))])
    try:
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return
        _replace(path, text)
    except OSError as error:
        raise errors.InvalidInput(f"cannot write {path}: {error.strerror}", code="unwritable_file") from error


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # gone already if it took the place


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One at a time in this folder, as the file itself is replaced; all at once where a file system has no locks."""
    with ExitStack() as stack:
        if fcntl is not None:
            with suppress(OSError):
                descriptor = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _rounded(value: float | None) -> float | None:
    """To more digits than anything is measured with, and few enough to read."""
    return None if value is None else float(f"{value:.6g}")


def _plain(shapes: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {name: list(shapes[name]) for name in sorted(shapes)}


def _entry(table: Mapping[str, Any]) -> Entry:
    """Names that a later version adds are overlooked."""
    known = {each.name for each in fields(Entry)}
    entry = Entry(**{name: value for name, value in table.items() if name in known})
    for name in _TEXTS:
        if not isinstance(getattr(entry, name), str):
            raise TypeError(f"{name} is no text")
    for name in ("device", "job"):
        if not isinstance(getattr(entry, name), str | None):
            raise TypeError(f"{name} is no text")
    for name in _NUMBERS:
        value = getattr(entry, name)
        if value is not None and not _is_number(value):
            raise TypeError(f"{name} is {value!r}, not a number from 0 up")
    if entry.bytes is None or entry.median_seconds == 0:
        raise ValueError("a bundle has bytes, and takes some time")
    shapes = entry.input_shapes
    if not isinstance(shapes, dict) or not all(type(size) is int for shape in shapes.values() for size in shape):
        raise TypeError("input_shapes are not lists of whole numbers by name")
    return entry


def _is_number(value: Any) -> bool:
    """TOML has true, nan and inf, too."""
    return type(value) in (int, float) and 0 <= value < float("inf")


def _table(entry: Entry) -> str:
    said = {name: value for name, value in asdict(entry).items() if value not in (None, {})}
    order = [each.name for each in fields(Entry)]
    lines = [f"{name} = {_toml(said[name])}" for name in order if name in said]
    return "\n".join(["[[artifact]]", *lines, ""])


def _toml(value: Any) -> str:
    """A TOML value. JSON's text is TOML's, but for one character."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(name)} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _wrong(path: Path, reason: str) -> errors.InvalidInput:
    hint = "Take the committed one back, or remove it and pull again; resolve the conflict if a merge left one."
    return errors.InvalidInput(f"{path} is no lock file: {reason}", code="invalid_lock", hint=hint)


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
