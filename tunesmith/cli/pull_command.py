"""``pull``: download a bundle and maintain the lock file."""

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
    from tunesmith.lockfile import Entry, Question

_DIGEST = re.compile(r"[0-9a-f]{64}")
_ANOTHER = (
    "Pull again without --frozen to use another verified bundle for the locked device and TVM version, if there is "
    "one, and update the lock file. Otherwise tune the model again: tunesmith tune."
)
_EPILOG = """\b
Examples:
  tunesmith pull JOB -o net.tar
  tunesmith pull --model net.onnx --target native -o net.tar
\b
In CI, pin the bundle with a lock file (docs/how-to/ci.md):
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
    not_below_reference: bool


def pull(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="Id of a job that succeeded.", autocompletion=options.job_ids),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="FILE|DIGEST", help="Download the best bundle of this model, from any job.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="With --model: target of the bundle.  [default: native]")] = None,
    device: Annotated[
        str | None, typer.Option(metavar="KEY", help="With --model: key of the device that measured it.")
    ] = None,
    toolchain: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --model: toolchain or its prefix, such as relay or relax/tvm-0.27.0."),
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
        Path | None,
        typer.Option(metavar="FILE", help="Lock file that records the bundle; later pulls keep to its device and TVM."),
    ] = None,
    fail_if_slower: Annotated[
        str | None,
        typer.Option(metavar="5%|0.05", help="With --lock: fail if the new bundle is slower by more than this."),
    ] = None,
    fail_if_slower_than_reference: Annotated[
        bool,
        typer.Option(
            "--fail-if-slower-than-reference",
            help="Fail if the bundle's job found it slower than ONNX Runtime, or did not compare them.",
        ),
    ] = False,
    frozen: Annotated[bool, typer.Option("--frozen", help="With --lock: download exactly the locked bundle.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="With --lock: accept the best bundle of any toolchain, device and speed.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Download the bundle of a job, or the best bundle of a model."""
    locking = _Locking(
        file=lock,
        limit=_limit(fail_if_slower),
        update=update,
        not_below_reference=fail_if_slower_than_reference,
    )
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
    except (errors.LockNotKept, errors.SlowerThanReference) as error:
        _refused(error, as_json=as_json)
        raise
    _show(result, as_json=as_json)


def _check_choice(job: str | None, model: str | None, locking: _Locking, *, frozen: bool) -> None:
    chooses = locking.update or locking.limit is not None
    if (job is None) == (model is None):
        raise typer.BadParameter("give either JOB or --model, not both")
    if locking.file is None and (frozen or chooses):
        raise typer.BadParameter("--frozen, --update and --fail-if-slower need --lock FILE")
    if frozen and (job or chooses):
        raise typer.BadParameter("--frozen cannot be combined with JOB, --update or --fail-if-slower")


def _check_chosen(chosen: dict[str, Any], job: str | None, *, frozen: bool) -> None:
    given = [option for option, value in chosen.items() if value]
    if job is not None and given:
        raise typer.BadParameter(f"{', '.join(given)}: only with --model; a JOB has a single bundle")
    if frozen and "--toolchain" in given:
        raise typer.BadParameter("--frozen cannot be combined with --toolchain")


@contextmanager
def _missing(locking: _Locking, held: Entry | None = None) -> Iterator[None]:
    """With a lock file, convert NotFound to LockNotKept."""
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
        raise typer.BadParameter(f"--fail-if-slower must be a share such as 5% or 0.05, not {text!r}")
    if limit is not None and limit >= 1 and not str(text).endswith("%"):
        raise typer.BadParameter(f"--fail-if-slower {text} means {100 * limit:g}%; write {text}% or {100 * limit:g}%")
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

    with connecting.client() as client:
        question = lockfile.Question(model=_digest(model, client), **wanted)
        held = _held(locking.file, question)
        with _missing(locking):
            found = lockfile.best(client, question, toolchain=toolchain, held=None if locking.update else held)
        result = _taken(found.artifact, question, to, locking, held=held)
    return result | {"faster_elsewhere": found.faster_elsewhere.data if found.faster_elsewhere else None}


def _frozen(model: str, wanted: dict[str, Any], to: str | None, locking: _Locking) -> dict[str, Any]:
    """Download the locked bundle; without a request to the server if the file is already present."""
    from tunesmith import downloads, lockfile

    question = lockfile.Question(model=_digest(model, None), **wanted)
    held = _held(locking.file, question)
    if held is None:
        raise errors.LockNotKept(
            f"{locking.file} has no entry for this model, target {question.target!r} and {question.precision}",
            code="not_locked",
            hint="Pull once without --frozen and commit the lock file.",
        )
    if locking.not_below_reference:
        lockfile.check_reference(held)
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
    """Compare the artifact with the locked entry, download it and update the lock file."""
    from tunesmith import downloads, lockfile

    now = lockfile.Entry.of(question, artifact)
    if held and held.sha256 == now.sha256:
        # The job is None for users who may not see it. Keep it, or the lock file would alternate between users.
        now = replace(now, job=held.job)
    if held and locking.limit is not None and not locking.update:
        lockfile.check_speed(held, now, locking.limit)
    if locking.not_below_reference:
        lockfile.check_reference(now)
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
            output.note("the partial download is kept; run the same command to resume it")
        raise


def _place(to: str | None, artifact_id: str) -> Path:
    from tunesmith import downloads

    name = f"{artifact_id}.tar"
    return Path(name) if to is None else downloads.place(to, name)


def _held(file: Path | None, question: Question) -> Entry | None:
    from tunesmith import lockfile

    return lockfile.read(file).get(question.key) if file else None


def _digest(model: str, client: Client | None) -> str:
    """Return the digest of a file, or of a model given by digest or id; an id is resolved by the server."""
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


def _refused(error: errors.LockNotKept | errors.SlowerThanReference, *, as_json: bool) -> None:
    """Show the locked and the new bundle, before the error itself is printed."""
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
        output.note(f"unchanged: {locked['artifact']} is already present, and its digest matches")
    else:
        if result["why"]:
            output.note(result["why"])
        if result["artifact"]:
            output.note(result["artifact"]["report"]["summary"])
    faster = result.get("faster_elsewhere")
    if faster:
        output.note(
            f"{faster['id']} is faster, but built by {faster['toolchain']} for {faster['device_key']}; "
            "use --update to accept it"
        )
    output.line(result["path"])


def _changes(held: Entry, now: Entry | None) -> None:
    from tunesmith import lockfile

    slower = lockfile.slower_by(held, now) if now else None
    for name, old, new in lockfile.changes(held, now):
        comparison = f"  ({lockfile.compared(slower)})" if name == "latency" and slower is not None else ""
        output.note(f"{name:<10} {old} → {new}{comparison}")
