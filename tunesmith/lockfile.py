"""``tunesmith.lock``: which bundle a project took for which question, so that the same is taken tomorrow.

TOML, one ``[[artifact]]`` table for each question (model, target, device, precision, shapes), sorted, so that a commit
shows what changed and two branches rarely touch the same lines.
"""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from tunesmith import errors
from tunesmith.artifacts import Artifact

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
