"""What a shell offers after Tab, where that is quick to find out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

STATES = ("queued", "running", "canceling", "succeeded", "failed", "canceled")
_SECONDS = 1.0
_MOST = 50


def jobs(incomplete: str) -> list[tuple[str, str]]:
    """Ids of the latest jobs with what they are about; none when no server answers quickly."""
    from tunesmith.client import Client

    try:
        with Client(retries=0, seconds=_SECONDS) as client:
            latest = [job.data for job in itertools.islice(client.jobs(), _MOST)]
    except Exception:  # noqa: BLE001 - whatever is wrong, a half-typed line is no place to tell
        return []
    found = [job for job in latest if job["id"].startswith(incomplete)]
    return [(job["id"], f"{job['state']}, {job['model_name']} for {job['target']}") for job in found]


def states(incomplete: str) -> list[str]:
    return among(STATES)(incomplete)


def among(words: Sequence[str]) -> Callable[[str], list[str]]:
    def offered(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return offered
