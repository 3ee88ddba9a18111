"""The SDK's way in."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from tunesmith import connection, errors, record_files, requests
from tunesmith.artifacts import Artifact
from tunesmith.jobs import Job
from tunesmith.models import Model
from tunesmith.tokens import Tokens
from tunesmith.transport import ANSWER_SECONDS, RETRIES, Json, Transport, segment

_CHUNK = 256 * 1024


class Client:
    """Talks to one server: the one named, or TUNESMITH_URL's, or the one that serves the home folder.

    Every method raises NetworkError and RequestRejected; see ``tunesmith.errors``. Not for several threads at once.
    What is harmless to repeat is repeated ``retries`` times, with growing pauses, when the server cannot be reached,
    answers 502, 503 or 504, or asks for a moment's patience (429 with Retry-After). An answer may take ``seconds``;
    uploads, plans and downloads have time of their own.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        retries: int = RETRIES,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._transport = Transport(connection.find(url, token), retries=retries, seconds=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    @property
    def url(self) -> str:
        return self._transport.url

    @property
    def tokens(self) -> Tokens:
        """Tokens of the server, and links with which browsers come in."""
        return Tokens(self._transport)

    def upload(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        model_format: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Model:
        """Send a model; ``progress`` gets bytes sent and bytes in all. Sending it twice is harmless.

        ``model_format`` is ``onnx`` or ``irmodule``; None is ``irmodule`` of a file that ends in ``.json``.
        """
        file = Path(path)
        try:
            size = file.stat().st_size
            file.open("rb").close()
        except OSError as error:
            if not file.is_file():
                raise errors.unreadable(file) from error
            raise errors.InvalidInput(
                f"cannot read {file}: {error.strerror}", code="unreadable_file", hint="Check its permissions."
            ) from error
        if size == 0:
            raise errors.InvalidInput(f"{file} is empty", code="invalid_model", hint="Name a file that holds a model.")
        wanted = model_format or ("irmodule" if file.suffix == ".json" else "onnx")
        params = {"name": name or file.stem, "format": wanted}
        response = self._transport.put("/v1/models", lambda: _read(file, size, progress), size=size, params=params)
        return Model.of(response.json(), created=response.status_code == 201)

    def operator(
        self,
        operator: str,
        shapes: Mapping[str, Sequence[int]],
        *,
        attributes: Mapping[str, int | Sequence[int]] | None = None,
        name: str | None = None,
    ) -> Model:
        """A model of one operator, to be tuned like any other; see ``POST /v1/models:operator``."""
        draft = {"operator": operator, "shapes": dict(shapes), "attributes": dict(attributes or {}), "name": name}
        return self.make_operator(draft)

    def make_operator(self, draft: Mapping[str, Any]) -> Model:
        """The same of a whole request, as ``tunesmith.operator_spec.parse`` makes it. Repeating it is harmless."""
        response = self._transport.post("/v1/models:operator", dict(draft))
        return Model.of(response.json(), created=response.status_code == 201)

    def models(self, *, name: str | None = None) -> Iterator[Model]:
        """Newest first; ``name`` is a part of theirs. Pages are fetched as they are needed."""
        return (Model.of(data) for data in self._transport.pages("/v1/models", "models", {"name": name}))

    def model(self, id_or_digest: str) -> Model:
        return Model.of(self._transport.get(f"/v1/models/{segment(id_or_digest)}").json())

    def delete_model(self, model: Model | str) -> bool:
        """Delete it and its artifacts; jobs and records of it are kept. Raises ModelInUse while jobs have not ended.

        Returns whether it is gone: where others have uploaded it as well, it is only no longer yours.
        """
        return bool(self._transport.delete(f"/v1/models/{segment(_named(model))}").json()["gone"])

    def tune(self, model: Model | str | None = None, **options: Unpack[requests.Options]) -> Job:
        """Ask for a model, or the one with this id or digest, to be tuned; see ``requests.Options``.

        With ``like``, the model may be left out: everything that is not said is as it was in that job.

        Tuning ends at the first limit of the budget; without one, the server's default applies. A lost answer makes no
        second job: the request carries a key of its own.
        """
        draft = requests.draft(None if model is None else _named(model), options)
        response = self._transport.post("/v1/jobs", draft, idempotency_key=uuid.uuid4().hex)
        return Job(self._transport, response.json())

    def plan(self, model: Model | str | None = None, **options: Unpack[requests.Options]) -> Json:
        """What ``tune`` with the same arguments would do and cost: engines, tasks covered, trials, minutes.

        Queues nothing. Takes as long as an engine needs to import the model, the first time.
        """
        draft = requests.draft(None if model is None else _named(model), options)
        return dict(self._transport.post("/v1/jobs:plan", draft, patient=True).json())

    def jobs(self, **filters: Unpack[requests.JobFilters]) -> Iterator[Job]:
        """Newest first; everything given must hold. Pages are fetched as they are needed."""
        params: dict[str, Any] = {name: _plain(value) for name, value in filters.items()}
        return (Job(self._transport, data) for data in self._transport.pages("/v1/jobs", "jobs", params))

    def job(self, job_id: str) -> Job:
        return Job(self._transport, self._transport.get(f"/v1/jobs/{segment(job_id)}").json())

    def groups(self) -> Iterator[Json]:
        """Names of groups with their jobs' states, the one with the newest job first."""
        return self._transport.pages("/v1/groups", "groups", {})

    def cancel_group(self, name: str) -> Json:
        """Cancel all of its jobs that have not ended; returns the group as it is then. Raises NotFound."""
        return dict(self._transport.post(f"/v1/groups/{segment(name)}:cancel").json())

    def artifact(self, id_or_digest: str) -> Artifact:
        return Artifact.of(self._transport, self._transport.get(f"/v1/artifacts/{segment(id_or_digest)}").json())

    def delete_artifact(self, artifact: Artifact | str) -> None:
        """Delete a bundle that a job of yours published; the job keeps its report. Raises Forbidden for others'."""
        named = artifact.id if isinstance(artifact, Artifact) else artifact
        self._transport.delete(f"/v1/artifacts/{segment(named)}")

    def artifacts(
        self,
        *,
        model: Model | str | None = None,
        target: str | None = None,
        device: str | None = None,
        precision: str | None = None,
    ) -> Iterator[Artifact]:
        """Newest first, verified or not; everything given must hold. Pages are fetched as they are needed."""
        params = {"target": target, "device": device, "precision": precision}
        params["model"] = None if model is None else _named(model)
        return (
            Artifact.of(self._transport, data) for data in self._transport.pages("/v1/artifacts", "artifacts", params)
        )

    def best(
        self,
        model: Model | str,
        *,
        target: str | None = None,
        device: str | None = None,
        toolchain: str | None = None,
        precision: str = "f32",
        input_shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Artifact:
        """The fastest verified artifact of that precision, for these shapes if any are named. Raises NotFound.

        ``toolchain`` is a whole one or its beginning: ``relay``, ``relay/tvm-0.19.0``.
        """
        shapes = [f"{name}:{','.join(map(str, shape))}" for name, shape in (input_shapes or {}).items()]
        wanted: dict[str, Any] = {"model": _named(model), "target": target, "device": device, "toolchain": toolchain}
        wanted |= {"precision": precision, "input_shape": shapes or None}
        found = self._transport.get("/v1/best", wanted).json()
        return Artifact.of(self._transport, found["artifact"], found["why"])

    def records(self, tuner: str | None = None, **filters: Unpack[record_files.Filters]) -> Iterator[Json]:
        """Trials of every job, failed ones too, in the order in which they were stored."""
        return self._transport.pages("/v1/records", "records", {"tuner": tuner, **filters})

    def export_records(self, path: str | Path, tuner: str, **filters: Unpack[record_files.Filters]) -> Path:
        """Write records as TVM's own readers take them.

        AutoTVM's and Ansor's to a file of JSON lines, MetaSchedule's two files into the folder ``path``, or both as one
        when ``path`` ends in ``.tar``.
        """
        return record_files.export(self._transport, Path(path), tuner, filters)

    def import_records(self, path: str | Path, tuner: str, **origin: Unpack[record_files.Origin]) -> Json:
        """Store a log that TVM wrote; returns counts of lines imported, known already and refused, and why.

        Doing it twice changes nothing. A line of another target, thread count or TVM version than named is refused.
        """
        return record_files.take(self._transport, Path(path), tuner, origin)

    def workers(self) -> list[Json]:
        return list(self.fleet()["workers"])

    def fleet(self) -> Json:
        """The workers, and as ``warnings`` what is wrong with them taken together."""
        found: Json = self._transport.get("/v1/workers").json()
        return found


def _plain(value: object) -> object:
    """A filter as a query has it."""
    if isinstance(value, Model):
        return value.digest
    return value.isoformat() if isinstance(value, datetime) else value


def _named(model: Model | str) -> str:
    return model.digest if isinstance(model, Model) else model


def _read(path: Path, size: int, progress: Callable[[int, int], None] | None) -> Iterator[bytes]:
    sent = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sent += len(chunk)
            yield chunk
            if progress:
                progress(sent, size)
