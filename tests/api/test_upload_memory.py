"""An upload is received in constant memory, as the server's own process sees it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from tests.api.factories import AUTHORIZED

_MIB = 1024 * 1024
_PROGRAM = """
import sys
from pathlib import Path
from tests.api.factories import make_service
from tests.api.live import serving
service = make_service(Path(sys.argv[1]))
with serving(service) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


def test_memory_stays_flat(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        process = psutil.Process(server.pid)
        peaks: list[int] = []

        def chunks(count: int) -> Iterator[bytes]:
            for number in range(count):
                yield bytes([number % 256]) * _MIB
                peaks.append(process.memory_info().rss)

        with httpx.Client(base_url=url, headers=AUTHORIZED, trust_env=False, timeout=60) as http:
            assert http.put("/v1/models", content=chunks(4)).status_code == 201
            before, started = process.memory_info().rss, time.monotonic()
            peaks.clear()
            answer = http.put("/v1/models", content=chunks(64))
        assert server.stdin is not None
        server.stdin.close()
        server.wait(timeout=20)
    assert answer.json()["bytes"] == 64 * _MIB
    assert max(peaks) - before < 24 * _MIB, f"grew by {(max(peaks) - before) / _MIB:.0f} MiB"
    assert time.monotonic() - started < 60
