"""``pull``: a bundle, and the lock file that says which one it was."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunesmith import errors
from tunesmith.cli import connecting, options, output

if TYPE_CHECKING:
    from tunesmith.artifacts import Artifact
    from tunesmith.client import Client
    from tunesmith.lockfile import Entry, Found, Question

_DIGEST = re.compile(r"[0-9a-f]{64}")
_ANOTHER = (
    "Pull again without --frozen: that takes another verified bundle of the locked device and TVM, if there is one, "
    "and updates the lock file. Else tune the model again: tunesmith tune."
)
_EPILOG = """\b
Examples:
  tunesmith pull JOB -o net.tar
  tunesmith pull --model net.onnx --target native -o net.tar
\b
In CI, hold what is taken to what was taken before (docs/how-to/ci.md):
  tunesmith pull --model net.onnx -o net.tar \\
      --lock tunesmith.lock --fail-if-slower 5%
  tunesmith pull --model net.onnx -o net.tar \\
      --lock tunesmith.lock --frozen
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(pull)


@dataclass(frozen=True, kw_only=True)
class _Locking:
    file: Path | None
    limit: float | None
    update: bool


def pull(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="Id of a job that has succeeded.", autocompletion=options.job_ids),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="FILE|DIGEST", help="The best bundle of this model, whichever job made it.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="With --model: what it is to run on.  [default: native]")] = None,
    device: Annotated[str | None, typer.Option(metavar="KEY", help="With --model: measured on this device.")] = None,
    toolchain: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --model: made by this one, or its beginning: relay, relax/tvm-0.27.0."),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="With --model: f32, bf16, fp16, int8, or auto for any.  [default: f32]")
    ] = None,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:1,3,224,224", help="With --model: only bundles for this shape; repeatable."),
    ] = None,
    to: options.Output = None,
    lock: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record in this file what was taken, and hold to it.")
    ] = None,
    fail_if_slower: Annotated[
        str | None,
        typer.Option(metavar="5%|0.05", help="With --lock: refuse what takes more time than the locked one by this."),
    ] = None,
    frozen: Annotated[bool, typer.Option("--frozen", help="With --lock: take exactly what is locked.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="With --lock: take the best, of any toolchain, device and speed.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Download a job's bundle, or the best of a model."""
    locking = _Locking(file=lock, limit=_limit(fail_if_slower), update=update)
    _check_choice(job, model, locking, frozen=frozen)
    chosen = {"--target": target, "--device": device, "--precision": precision, "--input-shape": input_shape}
    _check_chosen({**chosen, "--toolchain": toolchain}, job, frozen=frozen)
    options.check_output(to)
    shapes = options.input_shapes(input_shape or [])
    try:
        if job is not None:
            result = _of_job(job, to, locking)
        else:
            wanted: dict[str, Any] = {"target": target or "native", "precision": precision or "f32"}
            wanted |= {"device": device, "input_shapes": shapes}
            if frozen:
                result = _frozen(str(model), wanted, to, locking)
            else:
                result = _best(str(model), wanted, toolchain, to, locking)
    except errors.LockNotKept as error:
        _refused(error, as_json=as_json)
        raise
    _show(result, as_json=as_json)


def _check_choice(job: str | None, model: str | None, locking: _Locking, *, frozen: bool) -> None:
    chooses = locking.update or locking.limit is not None
    if (job is None) == (model is None):
        raise typer.BadParameter("name a JOB, or a model with --model, but not both")
    if locking.file is None and (frozen or chooses):
        raise typer.BadParameter("--frozen, --update and --fail-if-slower go with --lock FILE")
    if frozen and (job or chooses):
        raise typer.BadParameter("--frozen takes what is locked: a JOB, --update and --fail-if-slower change nothing")


def _check_chosen(chosen: dict[str, Any], job: str | None, *, frozen: bool) -> None:
    given = [option for option, value in chosen.items() if value]
    if job is not None and given:
        raise typer.BadParameter(f"{', '.join(given)}: these choose among a model's bundles; a JOB has one")
    if frozen and "--toolchain" in given:
        raise typer.BadParameter("--frozen takes what is locked: --toolchain changes nothing")


@contextmanager
def _missing(locking: _Locking, held: Entry | None = None) -> Iterator[None]:
    """With a lock file, that something is not there is a matter of the lock file."""
    try:
        yield
    except errors.NotFound as error:
        if locking.file is None:
            raise
        code = "artifact_missing" if error.code == errors.ARTIFACT_NOT_FOUND else error.code
        details = {**error.details, **({"locked": asdict(held)} if held else {})}
        is_gone = held is not None and error.code in (errors.ARTIFACT_NOT_FOUND, "artifact_deleted")
        hint = _ANOTHER if is_gone else error.hint
        raise errors.LockNotKept(error.message, code=code, hint=hint, details=details) from error


def _limit(text: str | None) -> float | None:
    limit = options.share(text, "--fail-if-slower")
    if limit is not None and not 0 <= limit < float("inf"):
        raise typer.BadParameter(f"--fail-if-slower is a share such as 5% or 0.05, not {text!r}")
    if limit is not None and limit >= 1 and not str(text).endswith("%"):
        raise typer.BadParameter(
            f"--fail-if-slower {text} would be {100 * limit:g}%; write {text}% or {100 * limit:g}%"
        )
    return limit


def _of_job(job: str, to: str | None, locking: _Locking) -> dict[str, Any]:
    from tunesmith.lockfile import Question

    with connecting.client() as client:
        artifact = client.job(job).artifact
        question = Question(
            model=artifact.data["model_digest"], target=artifact.target, precision=artifact.data["precision"]
        )
        return _taken(artifact, question, to, locking, held=_held(locking.file, question))


def _best(
    model: str, wanted: dict[str, Any], toolchain: str | None, to: str | None, locking: _Locking
) -> dict[str, Any]:
    from tunesmith import lockfile
    from tunesmith.lockfile import Question

    with connecting.client() as client:
        question = Question(model=_digest(model, client), **wanted)
        held = _held(locking.file, question)
        with _missing(locking):
            found = lockfile.best(client, question, toolchain=toolchain, held=None if locking.update else held)
        result = _taken(found.artifact, question, to, locking, held=held)
    return result | {"faster_elsewhere": _elsewhere(found)}


def _frozen(model: str, wanted: dict[str, Any], to: str | None, locking: _Locking) -> dict[str, Any]:
    """Without a word to the server where the file is there already."""
    from tunesmith import downloads
    from tunesmith.lockfile import Question

    question = Question(model=_digest(model, None), **wanted)
    held = _held(locking.file, question)
    if held is None:
        raise errors.LockNotKept(
            f"{locking.file} holds nothing for this model, target {question.target!r} and {question.precision}",
            code="not_locked",
            hint="Pull once without --frozen and commit the lock file.",
        )
    path = _place(to, held.artifact)
    result: dict[str, Any] = {
        "path": str(path),
        "locked": asdict(held),
        "previous": None,
        "artifact": None,
        "why": None,
    }
    if downloads.is_there(path, held.sha256):
        return {"status": "unchanged", **result}
    with connecting.client() as client, _missing(locking, held):
        artifact = client.artifact(held.sha256)
        _download(artifact, to, path)
    return {"status": "downloaded", **result, "artifact": artifact.data}


def _taken(
    artifact: Artifact, question: Question, to: str | None, locking: _Locking, *, held: Entry | None
) -> dict[str, Any]:
    """Checks what was found against what is locked, has it downloaded, and locks it."""
    from tunesmith import downloads, lockfile

    now = lockfile.Entry.of(question, artifact)
    if held and held.sha256 == now.sha256:
        # Who may not see the job would take it out of the file, and the next one put it in again.
        now = replace(now, job=held.job)
    if held and locking.limit is not None and not locking.update:
        lockfile.check_speed(held, now, locking.limit)
    path = _place(to, artifact.id)
    is_there = downloads.is_there(path, artifact.digest)
    if not is_there:
        _download(artifact, to, path)
    if locking.file and now != held:
        lockfile.put(locking.file, now)
    moved = held is not None and held.sha256 != now.sha256
    return {
        "status": "updated" if moved else "unchanged" if is_there else "downloaded",
        "path": str(path),
        "locked": asdict(now) if locking.file else None,
        "previous": asdict(held) if held and moved else None,
        "artifact": artifact.data,
        "why": artifact.why,
    }


def _download(artifact: Artifact, to: str | None, path: Path) -> None:
    try:
        artifact.download(to or path, progress=connecting.download_progress(path, artifact.size_bytes))
    except (KeyboardInterrupt, errors.NetworkError):
        if any(path.absolute().parent.glob(f".{glob.escape(path.name)}.*.part")):
            output.note("what has come of the bundle is kept; the same command goes on from there")
        raise


def _place(to: str | None, artifact_id: str) -> Path:
    from tunesmith import downloads

    name = f"{artifact_id}.tar"
    return Path(name) if to is None else downloads.place(to, name)


def _held(file: Path | None, question: Question) -> Entry | None:
    from tunesmith import lockfile

    return lockfile.read(file).get(question.key) if file else None


def _digest(model: str, client: Client | None) -> str:
    """Of a file by that name, else what was given: a digest, or an id, which only a server can resolve."""
    from tunesmith.downloads import file_digest

    path = Path(model)
    if path.is_file():
        return file_digest(path)
    if path.suffix or "/" in model:
        raise errors.unreadable(path)
    if _DIGEST.fullmatch(model):
        return model
    if client is not None:
        return client.model(model).digest
    with connecting.client() as asked:
        return asked.model(model).digest


def _elsewhere(found: Found) -> dict[str, Any] | None:
    return found.faster_elsewhere.data if found.faster_elsewhere else None


def _refused(error: errors.LockNotKept, *, as_json: bool) -> None:
    """The two sides, before the error itself is told."""
    from tunesmith.lockfile import Entry

    held, now = error.details.get("locked"), error.details.get("now")
    if as_json:
        output.document({"status": error.code, **error.details})
    elif held:
        _changes(Entry(**held), Entry(**now) if now else None)


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    from tunesmith.lockfile import Entry

    if as_json:
        output.document(result)
        return
    if result["previous"]:
        _changes(Entry(**result["previous"]), Entry(**result["locked"]))
    elif result["status"] == "unchanged":
        locked = result["locked"] or {"artifact": result["artifact"]["id"]}
        output.note(f"unchanged: {locked['artifact']} is there already, with the right digest")
    else:
        if result["why"]:
            output.note(result["why"])
        if result["artifact"]:
            output.note(result["artifact"]["report"]["summary"])
    faster = result.get("faster_elsewhere")
    if faster:
        output.note(
            f"{faster['id']} is faster, but by {faster['toolchain']} on {faster['device_key']}; --update takes it"
        )
    output.line(result["path"])


def _changes(held: Entry, now: Entry | None) -> None:
    from tunesmith import lockfile

    slower = lockfile.slower_by(held, now) if now else None
    for name, old, new in lockfile.changes(held, now):
        said = f"  ({lockfile.compared(slower)})" if name == "latency" and slower is not None else ""
        output.note(f"{name:<10} {old} → {new}{said}")
