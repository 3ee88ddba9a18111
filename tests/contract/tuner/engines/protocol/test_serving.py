"""The engine's side of the wire, byte by byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tuner.host.catalogue import ROOT

SESSION = Path(__file__).parents[4] / "unit/tuner/engines/protocol/transcripts/session.txt"


@contextmanager
def raw_engine() -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO]]:
    """An engine started without any host code, and what it writes to its event descriptor."""
    events, engine_events = os.pipe()
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.contract.tuner.engines.protocol.example_engine",
            "--event-fd",
            str(engine_events),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[engine_events],
        start_new_session=True,
    ) as process:
        os.close(engine_events)
        with os.fdopen(events, "rb") as stream:
            yield process, stream
        process.kill()


def without_heartbeats(stream: BinaryIO) -> Iterator[bytes]:
    return (line for line in stream if b'"event":"heartbeat"' not in line)


def test_an_engine_speaks_as_the_transcript_has_it() -> None:
    with raw_engine() as (process, stream):
        assert process.stdin
        spoken = without_heartbeats(stream)
        for line in SESSION.read_text().splitlines(keepends=True):
            if line.startswith("> "):
                process.stdin.write(line[2:].encode())
                process.stdin.flush()
            elif line.startswith("< "):
                assert next(spoken) == line[2:].encode()


def test_an_engine_leaves_by_itself_when_its_input_ends() -> None:
    with raw_engine() as (process, stream):
        assert process.stdin
        process.stdin.close()
        assert len(list(without_heartbeats(stream))) == 1
        assert process.wait(10) == 0


def test_an_engine_that_reads_no_request_ends_with_a_traceback() -> None:
    with raw_engine() as (process, _):
        assert process.stdin
        process.stdin.write(b"this is no request\n")
        process.stdin.flush()
        assert process.wait(10) == 1


def test_the_protocol_needs_nothing_but_the_standard_library() -> None:
    code = "import sys, tuner.engines.protocol.serving; print(*sorted({n.split('.')[0] for n in sys.modules}))"
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(answer.stdout.split()) - {"__main__", "tuner"}
    assert loaded <= {*sys.stdlib_module_names, "sitecustomize"}
