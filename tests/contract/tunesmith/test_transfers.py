"""Models and bundles pass through, however large they are."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from domain import ids
from storage import artifacts
from tests.support.api.factories import Service
from tests.support.tunesmith.stored import forget, tuned
from tunesmith.client import Client

ROOT = Path(__file__).parents[3]
LARGE_BYTES = 64 * 1024 * 1024
MOST_KIB = 16 * 1024
CLIENT = """
import resource, sys
from tunesmith import Client

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

with Client() as client:
    client.upload(sys.argv[1])
    before = peak()
    sent, come = [], []
    client.upload(sys.argv[2], progress=lambda *counts: sent.append(counts))
    client.artifact(sys.argv[3]).download("large.tar", progress=lambda *counts: come.append(counts))
    assert sent[-1] == come[-1] and len(sent) > 100 and len(come) > 100, (sent[-1], come[-1])
    print(peak() - before)
"""


def test_memory_stays_constant(service: Service, client: Client, onnx: Path, tmp_path: Path) -> None:
    content = b"static model".ljust(1024, b".") * (LARGE_BYTES // 1024)
    large = tmp_path / "large.onnx"
    large.write_bytes(content)
    blob = service.blobs.put([content])
    made = tuned(service, client, client.upload(onnx), gain=1.5)
    forget(service, made.id)
    with service.database.transaction() as session:
        changes = {"id": ids.artifact(blob.digest), "digest": blob.digest, "size_bytes": blob.size_bytes}
        bundle = artifacts.add(session, replace(made, **changes))  # type: ignore[arg-type]
    command = [sys.executable, "-c", CLIENT, str(onnx), str(large), bundle.id]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < MOST_KIB
    assert hashlib.sha256((tmp_path / "large.tar").read_bytes()).hexdigest() == blob.digest
