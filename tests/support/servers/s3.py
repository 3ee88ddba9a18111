"""An S3 server as a process of its own: moto's, which keeps everything in memory and believes every secret."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

from tests.support.servers import processes

BUCKET = "tunesmith"
REGION = "us-east-1"
KEY_ID, SECRET = "tester", "for-tests-only"
_START_SECONDS = 30.0


@dataclass(kw_only=True)
class S3:
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def log(self) -> Path:
        return self.folder / "s3.log"

    def endpoint(self, *, port: int | None = None) -> str:
        """``port`` is another one than the server's, such as a proxy's."""
        return f"http://127.0.0.1:{port or self.port}"

    @property
    def credentials(self) -> dict[str, str]:
        """As boto3 reads them from the environment."""
        return {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": REGION}

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint(),
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            region_name=REGION,
        )

    def create_bucket(self, name: str = BUCKET) -> None:
        client = self.client()
        client.create_bucket(Bucket=name)
        client.close()

    def start(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = processes.start(command, log=self.log, folder=self.folder)
        processes.wait_until(self.answers, seconds=_START_SECONDS, what="the S3 server answers", log=self.log)

    def answers(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            opener.open(f"{self.endpoint()}/moto-api/", timeout=2),
        ):
            return True
        return False

    def stop(self) -> None:
        """Everything that it kept is gone."""
        if self.process is not None:
            processes.end(self.process, seconds=5)
            self.process = None


@contextlib.contextmanager
def running() -> Iterator[S3]:
    folder = Path(tempfile.mkdtemp(prefix="tunesmith-s3-"))
    server = S3(folder=folder, port=processes.free_port())
    try:
        server.start()
        server.create_bucket(BUCKET)
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
