"""Programs with limits: what they are kept from."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tuner import catalogue
from tuner.session import Limits

_CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5); print('connected')"
_ALLOWED = "import sys; sys.path.insert(0, sys.argv[1]); from tuner import limited; print(limited.leave_network())"


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _run(limits: Limits, *program: str) -> str:
    ended = subprocess.run(
        [*limits.command, sys.executable, *program], capture_output=True, text=True, timeout=30, check=False
    )
    return ended.stdout + ended.stderr


def _limits(*, offline: bool) -> Limits:
    return Limits(memory_bytes=2 * 1024**3, cpu_seconds=20, file_bytes=1024, offline=offline)


def _kernel_allows() -> bool:
    said = subprocess.run(
        [sys.executable, "-c", _ALLOWED, str(catalogue.ROOT)], capture_output=True, text=True, check=True
    )
    return said.stdout.strip() == "True"


def test_who_reads_uploads_reaches_nobody(port: int) -> None:
    assert "connected" in _run(_limits(offline=False), "-c", _CONNECT, str(port))
    said = _run(_limits(offline=True), "-c", _CONNECT, str(port))
    # Where the kernel forbids networks of one's own, reading goes on with the other limits.
    assert ("connected" in said) is not _kernel_allows(), said
