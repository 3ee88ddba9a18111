"""The client of the SDK."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from tunesmith import connection, errors, record_files, requests
from tunesmith.artifacts import Artifact
from tunesmith.data_sets import DataSet
from tunesmith.jobs import Job
from tunesmith.models import Model
from tunesmith.tokens import Tokens
from tunesmith.transport import ANSWER_SECONDS, RETRIES, Json, Transport, segment

_CHUNK = 256 * 1024


class Client:
    """Client of one server: ``url``, else TUNESMITH_URL, else the server of the home folder.

    Every method raises NetworkError and RequestRejected; see ``tunesmith.errors``. Not thread-safe.
    Idempotent requests are retried ``retries`` times with exponential backoff if the server is unreachable, answers
    502, 503 or 504, or 429 with Retry-After. ``seconds`` is the timeout of a response; uploads, plans and downloads
    have timeouts of their own.
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
        """Access tokens and login links of the server."""
        return Tokens(self._transport)

    def upload(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        model_format: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Model:
        """Upload a model; uploading it again has no effect.

        ``model_format`` is ``onnx`` or ``irmodule``; None means ``irmodule`` for a ``.json`` file, else ``onnx``.
        ``progress`` is called with the bytes sent and the total. Raises InvalidInput for unreadable or empty files.
        """
        file, size = _file(path)
        if size == 0:
            raise errors.InvalidInput(
                f"{file} is empty", code="invalid_model", hint="Name a file that contains a model."
            )
        wanted = model_format or ("irmodule" if file.suffix == ".json" else "onnx")
        params = {"name": name or file.stem, "format": wanted}
        response = self._transport.upload(
            "PUT", "/v1/models", lambda: _read(file, size, progress), size=size, params=params
        )
        return Model.of(response.json(), created=response.status_code == 201)

    def operator(
        self,
        operator: str,
        shapes: Mapping[str, Sequence[int]],
        *,
        attributes: Mapping[str, int | Sequence[int]] | None = None,
        name: str | None = None,
    ) -> Model:
        """Create a model of a single operator, to tune like any other; see ``POST /v1/models:operator``."""
        draft = {"operator": operator, "shapes": dict(shapes), "attributes": dict(attributes or {}), "name": name}
        return self.make_operator(draft)

    def make_operator(self, draft: Mapping[str, Any]) -> Model:
        """Create the model from a request body, as ``tunesmith.operator_spec.parse`` returns it. Idempotent."""
        response = self._transport.post("/v1/models:operator", dict(draft))
        return Model.of(response.json(), created=response.status_code == 201)

    def models(self, *, name: str | None = None) -> Iterator[Model]:
        """Iterate over models whose name contains ``name``, newest first. Fetches pages lazily."""
        return (Model.of(data) for data in self._transport.pages("/v1/models", "models", {"name": name}))

    def model(self, id_or_digest: str) -> Model:
        return Model.of(self._transport.get(f"/v1/models/{segment(id_or_digest)}").json())

    def delete_model(self, model: Model | str) -> bool:
        """Delete a model and its artifacts; its jobs and records are kept. Raises Conflict while jobs have not ended.

        Returns False if others have uploaded it, too: only your ownership ends, and the model is kept.
        """
        return bool(self._transport.delete(f"/v1/models/{segment(_named(model))}").json()["gone"])

    def add_data_set(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> DataSet:
        """Add a data set, an ``.npz`` file of rows, to be named as ``data`` of ``tune``; adding it again has no effect.

        ``name`` is unique among yours; None is the file's name. ``progress`` as in ``upload``. Raises InvalidInput for
        unreadable or empty files, and Conflict if another data set has the name.
        """
        file, size = _file(path)
        if size == 0:
            raise errors.InvalidInput(
                f"{file} is empty", code="invalid_data_set", hint="Name a file that numpy.savez wrote."
            )
        params = {"name": name or plain_name(file)}
        response = self._transport.upload(
            "POST", "/v1/datasets", lambda: _read(file, size, progress), size=size, params=params
        )
        return DataSet.of(response.json(), created=response.status_code == 201)

    def data_sets(self) -> Iterator[DataSet]:
        """Iterate over your data sets, newest first. Fetches pages lazily."""
        return (DataSet.of(data) for data in self._transport.pages("/v1/datasets", "datasets", {}))

    def data_set(self, id_or_name: str) -> DataSet:
        return DataSet.of(self._transport.get(f"/v1/datasets/{segment(id_or_name)}").json())

    def delete_data_set(self, data_set: DataSet | str) -> None:
        """Delete a data set; jobs that used it keep their reports. Raises Conflict while jobs have not ended."""
        named = data_set.id if isinstance(data_set, DataSet) else data_set
        self._transport.delete(f"/v1/datasets/{segment(named)}")

    def tune(self, model: Model | str | None = None, **options: Unpack[requests.Options]) -> Job:
        """Submit a job that tunes a model, given as Model, id or digest; see ``requests.Options``.

        With ``like``, the model and all options not given are those of that job.

        Tuning ends at the first limit of the budget; without one, the server's default applies. A retry after a lost
        response creates no second job, as the request carries an idempotency key.
        """
        draft = requests.draft(None if model is None else _named(model), options)
        response = self._transport.post("/v1/jobs", draft, idempotency_key=uuid.uuid4().hex)
        return Job(self._transport, response.json())

    def plan(self, model: Model | str | None = None, **options: Unpack[requests.Options]) -> Json:
        """Return what ``tune`` with the same arguments would do: engines, tasks covered, trials, minutes.

        Submits nothing. The first call for a model takes as long as an engine needs to import it.
        """
        draft = requests.draft(None if model is None else _named(model), options)
        return dict(self._transport.post("/v1/jobs:plan", draft, patient=True).json())

    def jobs(self, **filters: Unpack[requests.JobFilters]) -> Iterator[Job]:
        """Iterate over jobs that match all filters, newest first. Fetches pages lazily."""
        params: dict[str, Any] = {name: _plain(value) for name, value in filters.items()}
        return (Job(self._transport, data) for data in self._transport.pages("/v1/jobs", "jobs", params))

    def job(self, job_id: str) -> Job:
        return Job(self._transport, self._transport.get(f"/v1/jobs/{segment(job_id)}").json())

    def groups(self) -> Iterator[Json]:
        """Iterate over groups with the states of their jobs, most recent job first."""
        return self._transport.pages("/v1/groups", "groups", {})

    def cancel_group(self, name: str) -> Json:
        """Cancel all unfinished jobs of a group and return its new state. Raises NotFound."""
        return dict(self._transport.post(f"/v1/groups/{segment(name)}:cancel").json())

    def artifact(self, id_or_digest: str) -> Artifact:
        return Artifact.of(self._transport, self._transport.get(f"/v1/artifacts/{segment(id_or_digest)}").json())

    def delete_artifact(self, artifact: Artifact | str) -> None:
        """Delete an artifact of one of your jobs; the job keeps its report. Raises Forbidden for those of others."""
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
        """Iterate over artifacts that match all arguments, verified or not, newest first. Fetches pages lazily."""
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
        """Return the fastest verified artifact of a precision, and for ``input_shapes`` if given. Raises NotFound.

        ``toolchain`` is a toolchain or a prefix of one: ``relay``, ``relay/tvm-0.19.0``.
        """
        shapes = [f"{name}:{','.join(map(str, shape))}" for name, shape in (input_shapes or {}).items()]
        wanted: dict[str, Any] = {"model": _named(model), "target": target, "device": device, "toolchain": toolchain}
        wanted |= {"precision": precision, "input_shape": shapes or None}
        found = self._transport.get("/v1/best", wanted).json()
        return Artifact.of(self._transport, found["artifact"], found["why"])

    def records(self, tuner: str | None = None, **filters: Unpack[record_files.Filters]) -> Iterator[Json]:
        """Iterate over the trials of all jobs, including failed ones, in the order in which they were stored, and then
        over the records that you imported."""
        return self._transport.pages("/v1/records", "records", {"tuner": tuner, **filters})

    def export_records(self, path: str | Path, tuner: str, **filters: Unpack[record_files.Filters]) -> Path:
        """Export records in the tuner's native format.

        For AutoTVM and Ansor, ``path`` is a file of JSON lines. For MetaSchedule it is a folder for its two files, or,
        if it ends in ``.tar``, an archive of both.
        """
        return record_files.export(self._transport, Path(path), tuner, filters)

    def import_records(self, path: str | Path, tuner: str, **origin: Unpack[record_files.Origin]) -> Json:
        """Import a log that TVM wrote; returns the numbers of imported, already stored and rejected lines.

        Your jobs measure the imported schedules before they search. Importing a log again changes nothing. Lines of
        another target, thread count or TVM version than given are rejected.
        """
        return record_files.take(self._transport, Path(path), tuner, origin)

    def invalidate_records(self, **filters: Unpack[record_files.ImportFilters]) -> int:
        """Withdraw your untried imported records; returns their number. No job tries them, even if imported again."""
        return record_files.invalidate(self._transport, filters)

    def delete_records(self, **filters: Unpack[record_files.ImportFilters]) -> int:
        """Delete your imported records; returns their number. Schedules measured since keep their measured records."""
        return record_files.delete(self._transport, filters)

    def workers(self) -> list[Json]:
        return list(self.fleet()["workers"])

    def fleet(self) -> Json:
        """Return the workers, and ``warnings`` about the fleet as a whole."""
        found: Json = self._transport.get("/v1/workers").json()
        return found


def plain_name(file: Path) -> str:
    """Return the name of a data set in this file: the file's, of letters that names may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-._")[:180] or "data"


def _file(path: str | Path) -> tuple[Path, int]:
    """Return a readable file and its bytes. Raises InvalidInput."""
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
    return file, size


def _plain(value: object) -> object:
    """Convert the value of a filter to a query parameter."""
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
