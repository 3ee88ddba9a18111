"""Jobs: state, events, results and actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from tunesmith import errors, events
from tunesmith.artifacts import Artifact
from tunesmith.events import Event
from tunesmith.progress import printing
from tunesmith.transport import Json, Transport


class Job:
    """A job: ``data`` is its last known state on the server; the methods query and change it."""

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
        """The current stage, or the last one reached."""
        stage = self.data["stage"]
        return None if stage is None else str(stage)

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.data["labels"])

    @property
    def group(self) -> str | None:
        group = self.data.get("group")
        return None if group is None else str(group)

    @property
    def sizes(self) -> list[Json]:
        """The entry points of a job of several sizes, with ``name``, ``share``, and after ``refresh`` the ``job`` that
        tunes it, its ``state`` and speedups; empty for other jobs."""
        return list(self.data.get("sizes") or [])

    @property
    def failure(self) -> Json | None:
        """``code``, ``message``, ``hint`` and ``details``; None unless the job failed."""
        failure = self.data["failure"]
        return None if failure is None else dict(failure)

    @property
    def is_finished(self) -> bool:
        return self.state in events.FINAL_STATES

    def refresh(self) -> Job:
        self.data = self._transport.get(f"/v1/jobs/{self.id}").json()
        return self

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Iterate over past and future events until the job has ended."""
        return events.watch(self._transport, self.id, after=after)

    def wait(self, progress: Callable[[Event], None] | Literal[True] | None = None) -> Job:
        """Wait until the job has succeeded. Raises JobFailed with the code of the failure, and JobCanceled.

        ``progress`` is called with every event; True prints lines to standard error, as ``tunesmith tune`` in a pipe.
        """
        tell = printing() if progress is True else progress
        for event in self.events():
            if tell:
                tell(event)
        return self.refresh().check()

    def check(self) -> Job:
        """Raise JobFailed or JobCanceled if the job ended that way."""
        if self.state == "failed":
            raise errors.from_failure(self.id, self.failure or {})
        if self.state == "canceled":
            raise errors.JobCanceled(f"job {self.id} was canceled")
        return self

    def report(self) -> Json:
        """Return timings, verifications, the published variant and a summary. Raises Conflict before the job ends."""
        return dict(self._transport.get(f"/v1/jobs/{self.id}/report").json())

    def profile(self) -> Json:
        """Return the published build's time by operator, as ``GET /v1/jobs/{id}/profile``.

        Raises Conflict before the job ends, and NotFound if it has no profile.
        """
        return dict(self._transport.get(f"/v1/jobs/{self.id}/profile").json())

    def log(self, offset: int | None = None) -> tuple[str, int]:
        """Return the end of the engine log, or the text after ``offset``, and the next offset."""
        response = self._transport.get(f"/v1/jobs/{self.id}/log", {"offset": offset})
        return response.text, int(response.headers["Tunesmith-Next-Offset"])

    def records(self) -> str:
        """Return the job's records in the tuner's native format, one line per trial."""
        return self._transport.get(f"/v1/jobs/{self.id}/records").text

    def deliveries(self) -> Json:
        """Return the ``url`` of the webhook, None without one, and the ``deliveries`` of its message."""
        return dict(self._transport.get(f"/v1/jobs/{self.id}/deliveries").json())

    def resend(self) -> Json:
        """Send the message again and return the deliveries. Raises Conflict if there is no message."""
        return dict(self._transport.post(f"/v1/jobs/{self.id}/deliveries:resend").json())

    def cancel(self) -> Job:
        """Cancel the job; a running one is ``canceling`` until its worker stops. Raises Conflict for ended jobs."""
        self.data = self._transport.post(f"/v1/jobs/{self.id}:cancel").json()
        return self

    def retry(self) -> Job:
        """Submit a failed or canceled job again, and return the new job. Raises Conflict for other states."""
        return Job(self._transport, self._transport.post(f"/v1/jobs/{self.id}:retry").json())

    @property
    def artifact(self) -> Artifact:
        """The published artifact. Raises Conflict before the job ends, and NotFound if it published none."""
        if not self.data.get("artifact_id"):
            self.refresh()
        identifier = self.data.get("artifact_id")
        if identifier is None:
            raise self._without_artifact()
        return Artifact.of(self._transport, self._transport.get(f"/v1/artifacts/{identifier}").json())

    def _without_artifact(self) -> errors.RequestRejected:
        if not self.is_finished:
            return errors.Conflict(
                f"job {self.id} is {self.state} and has no artifact yet",
                code="job_not_finished",
                hint=f"Wait for it: tunesmith status {self.id} --watch.",
            )
        verb = "been canceled" if self.state == "canceled" else self.state
        return errors.NotFound(
            f"job {self.id} has {verb} and published nothing",
            code=errors.ARTIFACT_NOT_FOUND,
            hint=f"See the reason: tunesmith status {self.id}.",
        )
