"""Reading of untrusted files of records in a child process with limits.

A file can be made that takes its reader minutes or any amount of memory; in the API's process, that would stop every
request.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from domain import errors
from domain.jobs import Tuner
from tuner.host import failures
from tuner.host.catalogue import ROOT, EngineSpec
from tuner.host.session import EngineSession, Limits
from tuner.host.settings import TunerSettings
from tuner.native.reading import Batch

_READER = EngineSpec(name="records", module="tuner.native", requirements=ROOT / "requirements" / "app.txt")
"""Runs with the service's own interpreter."""
_BYTES_PER_SECOND = 1024**2
_WAITING = 4
"""Elapsed time for each second of CPU time, as the process waits while its records are stored."""


@dataclass(frozen=True, kw_only=True)
class RecordReader:
    """Reads files of native records; each call starts a process."""

    home: Path
    settings: TunerSettings
    hidden: tuple[str, ...] = ()
    """Folders hidden from the process in addition to those hidden from all engines."""

    def read(self, path: Path, tuner: Tuner, take: Callable[[Batch], None]) -> None:
        """Call ``take`` with each batch of the file, in order.

        Raises Unavailable if the process does not start, and InvalidRequest for an invalid archive, or if reading
        crashes, hangs or exceeds the memory limit.
        """
        seconds = self.settings.inspect_seconds + path.stat().st_size / _BYTES_PER_SECOND
        params = {"path": str(path.absolute()), "tuner": tuner.value}
        try:
            with tempfile.TemporaryDirectory(prefix="tunesmith-records-") as scratch:
                log = Path(scratch) / "reader.log"
                with EngineSession.start(
                    _READER, Path(sys.executable), log_path=log, home=self.home, limits=self._limits(path, seconds)
                ) as session:
                    session.request(
                        "read", params, timeout=seconds * _WAITING, on_event=lambda _, data: take(Batch.of(data))
                    )
        except errors.EngineStartFailed as error:
            raise errors.Unavailable(f"the process that reads records did not start: {error.message}") from error
        except errors.EngineRequestFailed as error:
            if failures.needs_memory(error):
                raise self._unreadable(error, "memory", "it needs too much memory", seconds) from None
            if error.engine_code != errors.InvalidRequest.code:
                raise
            raise errors.InvalidRequest(error.message, hint=error.hint) from None
        except (errors.EngineCrashed, errors.EngineGarbled, errors.EngineSilent, errors.EngineTimeout) as error:
            raise self._unreadable(error, "reader_ended", failures.ending(error), seconds) from error

    def _limits(self, path: Path, seconds: float) -> Limits:
        return Limits(
            memory_bytes=self.settings.inspect_memory_mb * 1024**2,
            cpu_seconds=int(seconds) + 10,
            offline=True,
            hidden=self.hidden,
            shown=(str(path.absolute()),),
        )

    def _unreadable(self, error: errors.EngineError, reason: str, ending: str, seconds: float) -> errors.InvalidRequest:
        allowed = f"{self.settings.inspect_memory_mb / 1024:.1f} GB and {seconds:.0f} s"
        return errors.InvalidRequest(
            f"reading the records failed: {ending}",
            hint=f"Split the file and import the parts; each must be readable within {allowed}.",
            details={"cause": error.code, "reason": reason},
        )
