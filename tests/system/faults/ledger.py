"""What was paid for: every trial that any engine of any host finished, whatever became of it afterwards."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Self

_LOOK_SECONDS = 0.03

Trial = tuple[str, str]
"""Workload key and digest of the schedule."""


class Ledger:
    """Holds the spools of some homes open as they appear, so that they can be read after they were removed."""

    def __init__(self, homes: Sequence[Path]) -> None:
        self._homes = homes
        self._files: dict[Path, TextIOWrapper] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, name="ledger", daemon=True)

    def paid(self, job_id: str, *, home: Path | None = None) -> Counter[Trial]:
        """How often each trial of the job was finished and spooled, on all hosts or on that of ``home``."""
        return Counter(
            (str(line["workload_key"]), str(line["schedule_digest"]))
            for path, file in list(self._files.items())
            if job_id in path.parts and (home is None or path.is_relative_to(home))
            for line in _lines(file)
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        for file in self._files.values():
            file.close()

    def _look(self) -> None:
        while not self._done.wait(_LOOK_SECONDS):
            for home in self._homes:
                # A folder may go while it is read.
                with contextlib.suppress(OSError):
                    for path in (home / "work").glob("*/spool/*/*.jsonl"):
                        if path not in self._files:
                            self._files[path] = path.open(errors="replace")


def _lines(file: TextIOWrapper) -> Iterator[dict[str, object]]:
    file.seek(0)
    for text in file.read().splitlines():
        # The last line of a killed engine may be half a one: no trial.
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            if isinstance(line, dict) and "schedule_digest" in line:
                yield line
