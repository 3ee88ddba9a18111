"""What a server keeps, as objects: models, jobs, artifacts."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunesmith import errors, events
from tunesmith.events import Event
from tunesmith.transport import Transport

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Model:
    id: str
    digest: str
    """sha256 of the uploaded bytes, hex."""
    name: str
    data: Json = field(repr=False)
    """Everything the server says: inputs, outputs, opset, operators, …"""
    created: bool | None = None
    """After an upload: whether the bytes were new to the server."""

    @classmethod
    def of(cls, data: Json, *, created: bool | None = None) -> Model:
        return cls(id=data["id"], digest=data["digest"], name=data["name"], data=data, created=created)


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A compiled bundle with its evidence."""

    id: str
    digest: str
    size_bytes: int
    data: Json = field(repr=False)
    transport: Transport = field(repr=False, compare=False)
    why: str | None = None
    """Why it is the best, when that was asked for."""

    @classmethod
    def of(cls, transport: Transport, data: Json, why: str | None = None) -> Artifact:
        return cls(
            id=data["id"], digest=data["digest"], size_bytes=data["bytes"], data=data, transport=transport, why=why
        )

    def download(self, path: str | os.PathLike[str]) -> Path:
        """Write the bundle to ``path``, wholly and with the right digest or not at all."""
        target = Path(path)
        if target.is_dir():
            target = target / f"{self.id}.tar"
        try:
            descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        except OSError as error:
            raise errors.InvalidInput(f"cannot write to {target.parent}: {error.strerror}") from error
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                digest = hashlib.sha256()
                for chunk in self._chunks():
                    digest.update(chunk)
                    file.write(chunk)
            if digest.hexdigest() != self.digest:
                raise errors.ServerError(f"the bytes of {self.id} do not match its digest", hint="Download it again.")
            temporary.chmod(0o644)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        return target

    def _chunks(self) -> Iterator[bytes]:
        with self.transport.stream(f"/v1/artifacts/{self.id}/download") as response:
            yield from response.iter_bytes()


class Job:
    """A handle on one job: what the server last said about it, and what can be asked of it."""

    def __init__(self, transport: Transport, data: Json) -> None:
        self._transport = transport
        self.data = data

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, state={self.state!r})"

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def state(self) -> str:
        """queued, running, canceling, succeeded, failed or canceled; as of the last ``refresh``."""
        return str(self.data["state"])

    @property
    def stage(self) -> str | None:
        return self.data["stage"]  # type: ignore[no-any-return]

    @property
    def failure(self) -> Json | None:
        """code, message, hint and details; None unless it failed."""
        return self.data["failure"]  # type: ignore[no-any-return]

    @property
    def is_finished(self) -> bool:
        return self.state in events.FINAL_STATES

    def refresh(self) -> Job:
        self.data = self._transport.get(f"/v1/jobs/{self.id}").json()
        return self

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Everything that happened and happens to it, until it has ended."""
        return events.watch(self._transport, self.id, after=after)

    def wait(self, progress: Callable[[Event], None] | None = None) -> Job:
        """Return when it has succeeded. Raises JobFailed with the failure's own code, and JobCanceled."""
        for event in self.events():
            if progress:
                progress(event)
        return self.refresh().check()

    def check(self) -> Job:
        """Raises what ``wait`` raises, for a job that has already ended."""
        if self.state == "failed":
            failure = self.failure or {}
            raise errors.JobFailed(
                failure.get("message") or f"job {self.id} failed",
                code=failure.get("code"),
                hint=failure.get("hint"),
                details=failure.get("details"),
            )
        if self.state == "canceled":
            raise errors.JobCanceled(f"job {self.id} was canceled")
        return self

    def report(self) -> Json:
        """Timings, verifications, what was published and a summary."""
        return self._transport.get(f"/v1/jobs/{self.id}/report").json()  # type: ignore[no-any-return]

    def log(self, offset: int | None = None) -> tuple[str, int]:
        """The end of the engine log, or what follows ``offset``; and where to go on."""
        response = self._transport.get(f"/v1/jobs/{self.id}/log", {"offset": offset})
        return response.text, int(response.headers["Tunesmith-Next-Offset"])

    def records(self) -> str:
        """One line a trial, in the tuner's own format."""
        return self._transport.get(f"/v1/jobs/{self.id}/records").text

    def cancel(self) -> Job:
        self.data = self._transport.post(f"/v1/jobs/{self.id}:cancel").json()
        return self

    def retry(self) -> Job:
        """A new job for the same request."""
        return Job(self._transport, self._transport.post(f"/v1/jobs/{self.id}:retry").json())

    @property
    def artifact(self) -> Artifact:
        """Raises Conflict before it has finished, and NotFound when it published nothing."""
        if not self.data.get("artifact_id"):
            self.refresh()
        identifier = self.data.get("artifact_id")
        if identifier is None:
            if not self.is_finished:
                raise errors.Conflict(
                    f"job {self.id} is still {self.state}: it has no artifact yet",
                    code="job_not_finished",
                    hint=f"Wait for it: tunesmith status {self.id} --watch.",
                )
            raise errors.NotFound(
                f"job {self.id} has {'been ' if self.state == 'canceled' else ''}{self.state} and published nothing",
                code="artifact_not_found",
                hint=f"See why: tunesmith status {self.id}.",
            )
        return Artifact.of(self._transport, self._transport.get(f"/v1/artifacts/{identifier}").json())
