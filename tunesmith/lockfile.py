"""The lock file of ``pull``, ``tunesmith.lock``, and the selection of the best bundle.

The file is TOML with one ``[[artifact]]`` table per question (model, target, device, precision, shapes). The tables
are sorted, so that a commit shows what changed and two branches rarely touch the same lines.
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
except ImportError:  # without file locks, concurrent writers are not serialized
    fcntl = None  # type: ignore[assignment]

VERSION = 1
_COMPILED = "tvm"
"""How reports name the runtime of what was compiled."""
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
    """A request for a bundle, as the caller gave it: the key of an entry."""

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
    """The bundle that was downloaded for a question."""

    artifact: str
    sha256: str
    """Digest of the bundle."""
    bytes: int
    built_for: str
    """Target with its thread count."""
    device_key: str
    toolchain: str
    median_seconds: float | None = None
    """Median time of a run; None if the bundle was never run."""
    speedup_over_untuned: float | None = None
    speedup_over_reference: float | None = None
    runtime: str | None = None
    """What the bundle runs with where it is installed: ``onnxruntime``; None for what was compiled."""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    """Maximum error of any output against the reference; ``rel`` is relative to the output's largest value."""
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
            runtime=None if report.get("runtime") == _COMPILED else report.get("runtime"),
            max_abs_error=_rounded(max((output["max_abs"] for output in checked), default=None)),
            max_rel_error=_rounded(max((output["max_rel"] for output in checked), default=None)),
            job=artifact.data["job_id"],
        )

    @property
    def release(self) -> str:
        """Engine and TVM version: the toolchain without LLVM's version."""
        return "/".join(self.toolchain.split("/")[:2])


def read(path: Path) -> dict[str, Entry]:
    """Return entries by the keys of their questions; empty without a file. Raises InvalidInput for an invalid file."""
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
    """Add or replace one entry; safe with concurrent writers. Raises InvalidInput."""
    with _alone(path.absolute().parent):
        write(path, {**read(path), entry.key: entry})


def write(path: Path, entries: Mapping[str, Entry]) -> None:
    """Write the file atomically, unless its content is the same. Raises InvalidInput."""
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
        temporary.unlink(missing_ok=True)  # already renamed on success


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder, as the file itself is replaced; without effect on file systems without locks."""
    with ExitStack() as stack:
        if fcntl is not None:
            with suppress(OSError):
                descriptor = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _rounded(value: float | None) -> float | None:
    """Round to six significant digits."""
    return None if value is None else float(f"{value:.6g}")


def _plain(shapes: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {name: list(shapes[name]) for name in sorted(shapes)}


def _entry(table: Mapping[str, Any]) -> Entry:
    """Convert a table to an entry, ignoring unknown names. Raises TypeError and ValueError."""
    known = {each.name for each in fields(Entry)}
    entry = Entry(**{name: value for name, value in table.items() if name in known})
    for name in _TEXTS:
        if not isinstance(getattr(entry, name), str):
            raise TypeError(f"{name} is not a string")
    for name in ("device", "job", "runtime"):
        if not isinstance(getattr(entry, name), str | None):
            raise TypeError(f"{name} is not a string")
    for name in _NUMBERS:
        value = getattr(entry, name)
        if value is not None and not _is_number(value):
            raise TypeError(f"{name} must be a number of at least 0, not {value!r}")
    if entry.bytes is None or entry.median_seconds == 0:
        raise ValueError("bytes is missing, or median_seconds is 0")
    shapes = entry.input_shapes
    if not isinstance(shapes, dict) or not all(type(size) is int for shape in shapes.values() for size in shape):
        raise TypeError("input_shapes must map names to lists of integers")
    return entry


def _is_number(value: Any) -> bool:
    """Return whether ``value`` is a finite number of at least 0; TOML also has true, nan and inf."""
    return type(value) in (int, float) and 0 <= value < float("inf")


def _table(entry: Entry) -> str:
    values = {name: value for name, value in asdict(entry).items() if value not in (None, {})}
    order = [each.name for each in fields(Entry)]
    lines = [f"{name} = {_toml(values[name])}" for name in order if name in values]
    return "\n".join(["[[artifact]]", *lines, ""])


def _toml(value: Any) -> str:
    """Format a TOML value. JSON strings are TOML strings, except for one character."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(name)} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _wrong(path: Path, reason: str) -> errors.InvalidInput:
    hint = "Resolve merge conflicts, restore the committed file, or delete it and pull again."
    return errors.InvalidInput(f"{path} is not a valid lock file: {reason}", code="invalid_lock", hint=hint)


NATIVE, NONE = "native", "none"
_LOOKED_AT = 500
_MOST_SUGGESTED = 5


@dataclass(frozen=True, kw_only=True)
class Found:
    artifact: Artifact
    faster_elsewhere: Artifact | None = None
    """A faster artifact of another toolchain or device than the locked one."""


def best(client: Client, question: Question, *, toolchain: str | None, held: Entry | None) -> Found:
    """Find the best artifact; with ``held``, only for its device and release, as only these are comparable.

    ``toolchain``, if given, replaces the release of ``held``. Raises LockNotKept (``artifact_missing``) if ``held`` is
    set and nothing matches, else NotFound; both list the alternatives.
    """
    if held is None:
        try:
            return Found(artifact=_ask(client, question, toolchain=toolchain))
        except errors.NotFound as error:
            if error.code != errors.ARTIFACT_NOT_FOUND:
                raise
            raise _not_found(client, question, toolchain, error) from error
    release = toolchain or held.release
    alike = replace(
        question,
        # The meaning of "native" depends on the live workers.
        target=held.built_for if question.target == NATIVE else question.target,
        device=question.device or held.device_key,
    )
    try:
        artifact = _ask(client, alike, toolchain=release)
    except errors.NotFound as error:
        if error.code != errors.ARTIFACT_NOT_FOUND:
            raise
        way_out = _way_out(client, question, toolchain, locked=True)
        raise _gone(_none(alike, release), held, _instead(client.artifacts(model=question.model)), way_out) from error
    return Found(artifact=artifact, faster_elsewhere=_faster(client, question, toolchain, artifact))


def _faster(client: Client, question: Question, toolchain: str | None, than: Artifact) -> Artifact | None:
    any_one = _any(client, question, toolchain)
    return any_one if any_one and any_one.id != than.id and _seconds(any_one) < _seconds(than) else None


def _any(client: Client, question: Question, toolchain: str | None) -> Artifact | None:
    try:
        return _ask(client, question, toolchain=toolchain)
    except errors.RequestRejected:  # for example, "native" without a live worker
        return None


def slower_by(held: Entry, now: Entry) -> float | None:
    """Return by how much ``now`` is slower, 0.05 for 5 % more time; None if one of them was never timed."""
    if held.median_seconds is None or now.median_seconds is None:
        return None
    return now.median_seconds / held.median_seconds - 1.0


def check_speed(held: Entry, now: Entry, limit: float) -> None:
    """Compare a bundle with the locked one.

    Raises LockNotKept (``artifact_slower``) if it is slower by more than ``limit`` or was never timed, and
    InvalidInput if the locked one was never timed.
    """
    if held.sha256 == now.sha256:
        return
    slower = slower_by(held, now)
    if held.median_seconds is None:
        raise errors.InvalidInput(
            f"the lock file has no median_seconds for {held.artifact} to compare with",
            code="invalid_lock",
            hint="Restore the committed file, or accept the best bundle with --update.",
        )
    if slower is None:
        raise errors.LockNotKept(
            f"{now.artifact} was never timed, so it cannot be compared with the locked bundle",
            code="artifact_slower",
            hint="Keep the locked bundle with --frozen, or accept the new one with --update.",
            details={"locked": asdict(held), "now": asdict(now), "slower_by": None},
        )
    if slower > limit:
        raise errors.LockNotKept(
            f"the best bundle is {compared(slower)} than the locked one; {100 * limit:g} % is allowed",
            code="artifact_slower",
            hint="Tune again (tunesmith tune), keep the locked bundle with --frozen, or accept it with --update.",
            details={"locked": asdict(held), "now": asdict(now), "slower_by": slower},
        )


_AS_FAST = 0.98
"""Ratio from which a bundle counts as fast as its reference, as in the summaries of jobs."""


def check_reference(entry: Entry) -> None:
    """Raise SlowerThanReference for a bundle that its job's benchmark found slower than the reference (ONNX Runtime, or
    an IRModule's plain build), or that was not compared with it.

    A bundle that runs with the reference is as fast.
    """
    ratio = entry.speedup_over_reference
    if entry.runtime is not None or (ratio is not None and ratio >= _AS_FAST):
        return
    if ratio is None:
        said = "was not compared with ONNX Runtime, which did not run on its device"
        hint = "Pull without --fail-if-slower-than-reference, or tune on a worker that can run ONNX Runtime."
    else:
        said = f"is slower than the reference: {ratio:.2f}× as fast when it was published"
        hint = "Tune again, with a larger budget or with ONNX Runtime among the --runtimes (tunesmith tune)."
    details = {"now": asdict(entry), "speedup_over_reference": ratio}
    raise errors.SlowerThanReference(f"{entry.artifact} {said}", hint=hint, details=details)


def compared(slower: float) -> str:
    """Format ``0.05`` as ``5.0 % slower``; 50 % faster is half the time."""
    return f"{100 * abs(slower):.1f} % {'slower' if slower > 0 else 'faster'}" if slower else "as fast"


def changes(held: Entry, now: Entry | None) -> list[tuple[str, str, str]]:
    """Return the differences as name, old and new value; always includes latency and artifact."""
    pairs = [
        ("latency", _latency(held), _latency(now) if now else NONE),
        ("toolchain", held.toolchain, now.toolchain if now else NONE),
        ("runtime", held.runtime or _COMPILED, (now.runtime or _COMPILED) if now else NONE),
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
        f"{none}; the lock file has {held.artifact}",
        code="artifact_missing",
        hint=_hint(instead, way_out),
        details={"locked": asdict(held), "instead": instead},
    )


def _hint(instead: list[str], way_out: str | None) -> str:
    there = f"Available: {'; '.join(instead)}." if instead else None
    return " ".join(part for part in (there, way_out) if part)


def _way_out(client: Client, question: Question, toolchain: str | None, *, locked: bool) -> str:
    """Return a hint for options that would find a bundle; existing ones may differ in precision, target or shape."""
    if locked and (found := _any(client, question, toolchain)):
        return f"Accept the best match, {found.id}, with --update."
    named = [option for option, value in (("--toolchain", toolchain), ("--device", question.device)) if value]
    found = _any(client, replace(question, device=None), None) if named else None
    if found is None:
        return "Tune the model again: tunesmith tune."
    update = "use --update and " if locked else ""
    return f"To get {found.id}, {update}omit {' and '.join(named)}; or tune the model for these options."


def _none(question: Question, toolchain: str | None) -> str:
    by = f" by {toolchain}" if toolchain else ""
    on = f" on {question.device}" if question.device else ""
    shaped = f" with {_shapes(question.input_shapes)}" if question.input_shapes else ""
    return f"there is no verified {question.precision} bundle of this model for {question.target}{shaped}{by}{on}"


def _shapes(shapes: Mapping[str, Sequence[int]]) -> str:
    return " ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in sorted(shapes.items()))


def _instead(artifacts: Iterable[Artifact]) -> list[str]:
    """Describe the fastest artifact of each kind, fastest first."""
    fastest: dict[tuple[str, ...], Artifact] = {}
    for artifact in itertools.islice(artifacts, _LOOKED_AT):
        kind = (artifact.target, artifact.device_key, artifact.toolchain, artifact.data["precision"])
        if kind not in fastest or _seconds(artifact) < _seconds(fastest[kind]):
            fastest[kind] = artifact
    return [_in_words(each) for each in sorted(fastest.values(), key=_seconds)[:_MOST_SUGGESTED]]


def _in_words(artifact: Artifact) -> str:
    data = artifact.data
    sizes = ", ".join(size["name"] for size in data.get("sizes") or ())
    shapes = sizes or _shapes(data["input_shapes"])
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
