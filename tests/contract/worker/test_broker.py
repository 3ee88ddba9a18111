"""Where the embedded broker listens and how it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from domain import errors
from worker import broker


def test_the_socket_lies_in_the_home_folder() -> None:
    assert broker.socket_path(Path("/home/me/t")) == Path("/home/me/t/broker/valkey.sock")
    assert broker.url(Path("/home/me/t")) == "redis+socket:///home/me/t/broker/valkey.sock?virtual_host=0"


def test_a_long_home_gets_a_short_socket() -> None:
    homes = [Path("/home") / ("long" * 30) / str(number) for number in range(2)]
    paths = [broker.socket_path(home) for home in homes]
    assert all(len(os.fsencode(path)) <= 107 for path in paths)
    assert paths[0] != paths[1]
    assert paths == [broker.socket_path(home) for home in homes]
    assert paths[0].parent.stat().st_mode & 0o077 == 0


def test_every_write_is_on_disk_before_it_is_answered(tmp_path: Path) -> None:
    command = broker.command(tmp_path)
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert (options["--appendonly"], options["--appendfsync"], options["--port"]) == ("yes", "always", "0")


def test_a_server_of_the_system_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.ConfigurationError, match="no message broker"):
        broker.binary()
    server = tmp_path / "redis-server"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    assert broker.binary() == server


@pytest.mark.parametrize("module", ["worker.main", "serve.supervisor", "api.__main__"])
def test_the_service_imports_nothing_of_the_engines(module: str) -> None:
    program = f"import sys, {module}; print(' '.join(sorted(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(broker.__file__).parents[1],
    ).stdout.split()
    roots = {name.partition(".")[0] for name in loaded}
    assert not roots & {"tvm", "numpy", "onnx", "onnxruntime", "xgboost"}
    assert not [name for name in loaded if name.startswith(("tuner.engines.relay", "tuner.engines.onnx"))]
