"""What a program in the sandbox is kept from, as the user who runs the tests and as one without privileges."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.tuner import sandboxed
from tuner.sandbox import entering, filters, landlock, namespaces
from tuner.sandbox.limits import Limits

_CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5); print('reached')"
_STRANGER = """
import socket, sys
try:
    socket.socket(int(sys.argv[1]), socket.SOCK_STREAM)
except PermissionError:
    print("refused")
"""
_CALL = "import ctypes, sys; c = ctypes.CDLL(None, use_errno=True); {}; print('errno', ctypes.get_errno())"


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_who_reads_uploads_reaches_nobody(user: int, port: int) -> None:
    assert "reached" in sandboxed.run(Limits(), "-c", _CONNECT, str(port), user=user)
    strength = sandboxed.strength(user)
    # Where the kernel grants no network of one's own, the filter keeps Internet sockets away.
    assert strength["network"] or strength["calls"], strength
    assert "reached" not in sandboxed.run(Limits(offline=True), "-c", _CONNECT, str(port), user=user)


@pytest.mark.usefixtures("no_namespaces")
def test_without_a_namespace_the_filter_keeps_internet_sockets_away() -> None:
    if not sandboxed.strength(os.geteuid())["calls"]:
        pytest.skip("this kernel has no seccomp filters")
    for family in (socket.AF_INET, socket.AF_INET6):
        assert "refused" in sandboxed.run(Limits(offline=True), "-c", _STRANGER, str(int(family)))
        assert "refused" not in sandboxed.run(Limits(), "-c", _STRANGER, str(int(family)))
    assert "refused" not in sandboxed.run(Limits(offline=True), "-c", _STRANGER, str(int(socket.AF_UNIX)))


def test_its_own_loopback_is_up(user: int) -> None:
    if not sandboxed.strength(user)["network"]:
        pytest.skip("this kernel grants no network namespace")
    speak = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "socket.create_connection(s.getsockname(), 5); print('heard')"
    )
    assert "heard" in sandboxed.run(Limits(offline=True), "-c", speak, user=user)


def test_credentials_look_empty(user: int, tmp_path: Path) -> None:
    if not sandboxed.strength(user)["files"]:
        pytest.skip("this kernel grants no mount namespace")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "broker.sock").write_text("secret")
    (tmp_path / "server.json").write_text("secret")
    (tmp_path / "model.onnx").write_text("model")
    for path in (tmp_path, *tmp_path.parents[:-2]):
        path.chmod(0o755)
    hidden = (str(tmp_path / "server.json"), str(folder))
    look = (
        "import pathlib, sys; p = pathlib.Path(sys.argv[1]); "
        "print([(p / 'server.json').read_text(), [*(p / 'run').iterdir()], (p / 'model.onnx').read_text()])"
    )
    assert "['', [], 'model']" in sandboxed.run(Limits(hidden=hidden), "-c", look, str(tmp_path), user=user)
    assert (tmp_path / "server.json").read_text() == "secret", "the host sees what it saw"


@pytest.mark.usefixtures("no_namespaces")
def test_without_a_namespace_landlock_keeps_credentials_from_being_opened(user: int, tmp_path: Path) -> None:
    strength = sandboxed.strength(user)
    assert not strength["network"]
    if not strength["files"]:
        pytest.skip("this kernel has no Landlock")
    (tmp_path / "run").mkdir()
    for name in ("run/key", "server.json", "model.onnx"):
        (tmp_path / name).write_text(name)
    for path in (tmp_path, *tmp_path.parents[:-2]):
        path.chmod(0o755)
    read = "import sys; print(open(sys.argv[1]).read())"
    hidden = (str(tmp_path / "server.json"), str(tmp_path / "run"), "/nonexistent/too")
    for name in ("run/key", "server.json"):
        assert "PermissionError" in sandboxed.run(Limits(hidden=hidden), "-c", read, str(tmp_path / name), user=user)
    assert sandboxed.run(Limits(hidden=hidden), "-c", read, str(tmp_path / "model.onnx"), user=user) == "model.onnx\n"


_READ = """
import pathlib, sys
for path in map(pathlib.Path, sys.argv[1:]):
    try:
        print(path.name, path.read_text())
    except OSError as error:
        print(path.name, type(error).__name__)
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A folder of work folders, reached by a link, that anyone may enter."""
    folder = tmp_path / "disk" / "work"
    for name in ("mine", "theirs"):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(0o777)
        (folder / name / f"of-{name}").write_text("seen")
    (folder / "one-file").write_text("seen")
    (tmp_path / "home").symlink_to("disk")
    for path in (folder, folder.parent, tmp_path, *tmp_path.parents[:-2]):
        path.chmod(0o755)
    return tmp_path / "home" / "work"


def _shown(jobs: Path) -> Limits:
    shown = (str(jobs / "mine"), str(jobs / "one-file"), str(jobs / "not-there"), "/usr")
    return Limits(hidden=(str(jobs),), shown=shown, writable=(str(jobs / "mine"), str(jobs / "not-there")))


def _seen(jobs: Path, user: int) -> list[str]:
    paths = [jobs / "mine" / "of-mine", jobs / "one-file", jobs / "theirs" / "of-theirs"]
    return sandboxed.run(_shown(jobs), "-c", _READ, *map(str, paths), user=user).splitlines()


def test_of_a_hidden_folder_some_is_shown(user: int, jobs: Path) -> None:
    if not sandboxed.strength(user)["files"]:
        pytest.skip("this kernel grants no mount namespace")
    assert _seen(jobs, user)[:2] == ["of-mine seen", "one-file seen"]
    assert _seen(jobs, user)[2] in ("of-theirs FileNotFoundError", "of-theirs PermissionError")
    write = "import os, sys; os.chdir(sys.argv[1]); open('written', 'w').write('here'); os.rename('written', 'moved')"
    assert not sandboxed.run(_shown(jobs), "-c", write, str(jobs / "mine"), user=user)
    assert (jobs / "mine" / "moved").read_text() == "here", "what is written there is there for the host"


def test_beside_what_is_shown_nothing_can_be_made(user: int, jobs: Path) -> None:
    view = "/proc/self/ns/mnt"
    if str(Path(view).readlink()) in sandboxed.run(
        Limits(), "-c", f"import os; print(os.readlink({view!r}))", user=user
    ):
        pytest.skip("this kernel grants no mount namespace")
    look = "import os, sys; print(sorted(os.listdir(sys.argv[1]))); open(sys.argv[1] + '/made', 'w')"
    said = sandboxed.run(_shown(jobs), "-c", look, str(jobs), user=user)
    assert "['mine', 'one-file']" in said
    assert "Read-only file system" in said
    assert (jobs / "theirs" / "of-theirs").read_text() == "seen", "the host sees what it saw"


@pytest.mark.usefixtures("no_namespaces")
def test_without_a_namespace_landlock_shows_some_of_a_hidden_folder(user: int, jobs: Path) -> None:
    if not sandboxed.strength(user)["files"]:
        pytest.skip("this kernel has no Landlock")
    assert _seen(jobs, user) == ["of-mine seen", "one-file seen", "of-theirs PermissionError"]
    later = "import sys; p = sys.argv[1] + '/later'; open(p, 'w').write('made'); print(open(p).read())"
    assert sandboxed.run(_shown(jobs), "-c", later, str(jobs / "mine"), user=user) == "made\n"


def test_what_cannot_be_shown_is_not_hidden_by_mounts(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Landlock hides it then; an engine without its own files would be of no use."""
    sandboxed.weaken(monkeypatch, ["namespaces._put_back = lambda *_: False"])
    assert _seen(jobs, os.geteuid())[:2] == ["of-mine seen", "one-file seen"]


@pytest.mark.usefixtures("no_namespaces")
def test_without_a_namespace_files_move_between_folders_that_are_allowed(user: int, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    for path in (tmp_path, *tmp_path.parents[:-2]):
        path.chmod(0o755)
    move = (
        "import os, sys; os.chdir(sys.argv[1]); open('one/a', 'w').write('moved'); os.rename('one/a', 'other/a');"
        "print(open('other/a').read()); os.link('token', 'other/token')"
    )
    limits = Limits(hidden=(str(tmp_path / "token"),), writable=(str(tmp_path / "one"), str(tmp_path / "other")))
    said = sandboxed.run(limits, "-c", move, str(tmp_path), user=user)
    if landlock.knows_moves() or not sandboxed.strength(user)["files"]:
        assert "moved\n" in said
    assert not sandboxed.strength(user)["files"] or "OSError" in said or "PermissionError" in said


def test_namespaces_without_privileges_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Ubuntu 24.04: what was tried in a child is not done in this process."""
    done: list[int] = []

    def unshare(flags: int) -> bool:
        done.append(flags)
        return True

    def refuse(*_ids: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(namespaces, "_unshare", unshare)
    monkeypatch.setattr(namespaces, "_keep_ids", refuse)
    for network in (True, False):
        assert namespaces.leave(network=network) == set()
    assert not done


@pytest.mark.parametrize(("release", "lowered"), [("5.13.0-51-generic", 0), ("5.14.0", 1), ("6.8.0-45-generic", 1)])
def test_processes_are_limited_where_namespaces_count_their_own(
    release: str, lowered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[int] = []
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(entering, "_lower", lambda kind, _limit: kinds.append(kind))
    monkeypatch.setattr(namespaces, "leave", lambda **_: {"network"})
    monkeypatch.setattr(namespaces, "drop_privileges", lambda: True)
    monkeypatch.setattr(landlock, "restrict", lambda *_: set())
    monkeypatch.setattr(filters, "set_filter", lambda **_: True)
    entering._enter({"offline": True, "hidden": [], "shown": [], "sockets": [], "writable": []})
    assert kinds == [resource.RLIMIT_NPROC] * lowered


def test_no_privileges_and_no_way_to_more(user: int) -> None:
    lines = sandboxed.run(Limits(), "-c", "print(open('/proc/self/status').read())", user=user).splitlines()
    status = {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}
    assert status["NoNewPrivs"] == "1"
    # Root keeps the right to open its user's files.
    for kind in ("CapPrm", "CapEff", "CapBnd"):
        assert int(status[kind], 16) in ((0, 2) if user == 0 or kind == "CapBnd" else (0,)), kind
    if sandboxed.strength(user)["calls"]:
        assert status["Seccomp"] == "2"


@pytest.mark.parametrize(
    "call",
    [
        "c.ptrace(0, 0, 0, 0)",
        "c.unshare(0x10000000)",
        "c.mount(b'none', b'/mnt', b'tmpfs', 0, None)",
        "c.umount2(b'/proc', 0)",
        "c.chroot(b'/')",
        "c.syscall(425, 1, 0)",
        "c.prlimit(c.getpid(), 0, None, None)",
    ],
    ids=["ptrace", "unshare", "mount", "umount", "chroot", "io_uring", "limits by process"],
)
def test_calls_that_lead_out_are_refused(user: int, call: str) -> None:
    if not sandboxed.strength(user)["calls"]:
        pytest.skip("this kernel has no seccomp filters")
    assert "errno 1\n" in sandboxed.run(Limits(), "-c", _CALL.format(call), user=user)


def test_ordinary_programs_run(user: int) -> None:
    work = (
        "import subprocess, threading, multiprocessing.connection as m; a, b = m.Pipe(); a.send(1); assert b.recv();"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join();"
        "print(subprocess.run(['/bin/echo', 'child'], capture_output=True, text=True, check=True).stdout)"
    )
    said = sandboxed.run(Limits(offline=True, cpu_seconds=20), "-c", work, user=user)
    assert "thread" in said, said
    assert "child" in said, said


def test_it_signals_none_but_its_own(user: int) -> None:
    if not sandboxed.strength(user)["signals"]:
        pytest.skip("this kernel's Landlock knows no signals")
    with subprocess.Popen([*sandboxed.as_user(user), "sleep", "60"]) as other:
        try:
            said = sandboxed.run(Limits(), "-c", f"import os; os.kill({other.pid}, 15)", user=user)
            assert "PermissionError" in said
            assert other.poll() is None
        finally:
            other.kill()


@pytest.mark.parametrize(
    ("limits", "code", "said"),
    [
        (Limits(memory_bytes=2**30), "bytearray(2**31)", "MemoryError"),
        (Limits(data_bytes=2**30), "bytearray(2**31)", "MemoryError"),
        (Limits(file_bytes=1000), "open('written', 'wb', 0).write(bytes(2000)) == 1000 or 1/0", ""),
        (Limits(), "import resource; assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)", ""),
    ],
    ids=["address space", "memory", "file", "core"],
)
def test_limits_hold(limits: Limits, code: str, said: str, tmp_path: Path) -> None:
    limits = replace(limits, writable=(str(tmp_path),))
    ended = sandboxed.run(limits, "-c", f"import os; os.chdir({str(tmp_path)!r}); {code}")
    assert (said in ended) if said else not ended


def test_reserved_memory_is_no_memory() -> None:
    reserve = "import mmap; mmap.mmap(-1, 2**33, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)"
    assert not sandboxed.run(Limits(data_bytes=2**30), "-c", reserve)


def test_cpu_time_ends_it() -> None:
    command = [*Limits(cpu_seconds=1).command(), sys.executable, "-c", "while True: pass"]
    assert subprocess.run(command, timeout=20, check=False).returncode < 0


def test_a_program_that_is_not_there_is_told() -> None:
    command = [*Limits().command(), "/nonexistent/python"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "/nonexistent/python: No such file" in ended.stderr
