"""Which sockets of the host a sandboxed program cannot reach."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.tuner import sandboxed
from tests.support.tuner.fixtures import Start
from tuner.sandbox import limits as sandbox
from tuner.sandbox import probing
from tuner.sandbox.limits import Limits
from worker import broker

Listen = Callable[[Path], Path]
_CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('reached')"


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="ts-") as name:
        yield Path(name)


@pytest.fixture
def listen() -> Iterator[Listen]:
    opened: list[socket.socket] = []

    def listener(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened.append(socket.socket(socket.AF_UNIX))
        opened[-1].bind(str(path))
        opened[-1].listen()
        return path

    yield listener
    for each in opened:
        each.close()


def reached(path: Path, limits: Limits) -> bool:
    return "reached" in sandboxed.run(limits, "-c", _CONNECT, str(path))


def test_sockets_that_lead_out_are_not_reached(folder: Path, listen: Listen) -> None:
    if not probing.probe().network:
        pytest.skip("this kernel grants no namespaces")
    bus, agent = listen(folder / "run" / "bus"), listen(folder / "ssh-x" / "agent.1")
    among_others = listen(folder / "mixed" / "agent")
    (folder / "mixed" / "model.onnx").write_text("model")
    limits = Limits(
        sockets=(
            *sandbox.leading_out(None, {"XDG_RUNTIME_DIR": str(bus.parent), "SSH_AUTH_SOCK": str(agent)}),
            *sandbox.leading_out(None, {"SSH_AUTH_SOCK": str(among_others)}),
        )
    )
    for path in (bus, agent, among_others):
        assert reached(path, Limits())
        assert not reached(path, limits), path
    assert str(folder / "mixed") not in limits.sockets


def test_the_brokers_socket_is_hidden_where_the_homes_path_is_long() -> None:
    path = broker.socket_path(Path("/home") / ("long" * 30))
    assert str(path.parent) in sandbox.leading_out(None, {})


def test_folders_that_hold_what_engines_need_are_not_hidden(folder: Path, listen: Listen) -> None:
    bus = listen(folder / "bus")
    (folder / "home").mkdir()
    found = sandbox.leading_out(folder / "home", {"XDG_RUNTIME_DIR": str(folder)})
    assert str(bus) in found
    assert str(folder) not in found
    assert tempfile.gettempdir() not in sandbox.leading_out(None, {"SSH_AUTH_SOCK": "/tmp/agent"})  # noqa: S108


def test_what_is_not_there_or_unclear_is_left_out(folder: Path) -> None:
    outer = {"XDG_RUNTIME_DIR": "relative", "SSH_AUTH_SOCK": str(folder / "gone" / "agent")}
    assert not [path for path in sandbox.leading_out(None, outer) if path in outer.values() or "relative" in path]


def test_an_engine_does_not_reach_the_users_agents(
    start: Start, folder: Path, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a whole session."""
    if not probing.probe().network:
        pytest.skip("this kernel grants no namespaces")
    agent = listen(folder / "ssh" / "agent")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    engine = start()
    seen = Path(f"/proc/{engine.pid}/root{agent}")
    assert engine.request("echo", {}, timeout=10) is not None
    assert os.path.exists(agent)  # noqa: PTH110
    assert not seen.exists()
