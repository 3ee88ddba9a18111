"""Which files a sandboxed program cannot change: all except those of its own folders, also as root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner import sandboxed, walking
from tests.support.tuner.engines.fixtures import home
from tuner.sandbox.limits import ROOT, Limits

_WAYS = {"mounts": sandboxed.NO_LANDLOCK, "landlock": sandboxed.NO_NAMESPACES}


@pytest.fixture(params=_WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each by itself."""
    sandboxed.weaken(monkeypatch, [_WAYS[request.param]])
    return str(request.param)


@pytest.fixture
def _protected(way: str, user: int) -> None:
    if not sandboxed.strength(user)["writes"]:
        pytest.skip(f"this kernel does not protect files by {way}")


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """A small home and checkout that everybody could write, with a job's own folder."""
    for name in ("home/engines/relay/lib", "home/blobs/ab", "home/work/theirs", "home/work/mine/sub", "checkout/tuner"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("content")
    (tmp_path / "home/engines/onnx").symlink_to("relay", target_is_directory=True)
    (tmp_path / "scratch").mkdir()
    for path in [tmp_path, *tmp_path.rglob("*")]:
        path.chmod(0o777)
    for path in tmp_path.parents[:-2]:
        path.chmod(0o755)
    return tmp_path


def _walk(limits: Limits, *roots: Path, user: int | None = None) -> dict[str, Any]:
    said = sandboxed.run(limits, walking.__file__, *map(str, roots), user=user)
    try:
        return dict(json.loads(said))
    except ValueError:
        pytest.fail(said)


def test_the_walk_finds_what_is_open(copies: Path) -> None:
    found = walking.changed([str(copies / "checkout")])
    tried = {str(attempt).partition(" ")[0] for attempt in found["changed"]}  # type: ignore[attr-defined]
    attempts = {"create", "mkdir", "rmdir", "overwrite", "append", "truncate", "rename", "chmod", "chown", "utime"}
    assert (found["tried"], tried) == (3, attempts)
    assert (copies / "checkout" / "tuner" / "file").read_text() == "content"


@pytest.mark.usefixtures("_protected")
def test_only_its_own_folders_change(copies: Path, user: int) -> None:
    own = (str(copies / "home/work/mine"), str(copies / "scratch"))
    limits = Limits(writable=own, hidden=(str(copies / "home/work"),), shown=(str(copies / "home/work/mine"),))
    others = [copies / name for name in ("home", "checkout")]
    mine, scratch = copies / "home/work/mine", copies / "scratch"
    found = _walk(limits, *others, user=user)
    assert [each for each in found["changed"] if f" {mine}" not in each] == []
    assert found["tried"] > 9
    assert {f"create {mine}", f"create {mine}/sub", f"overwrite {mine}/sub/file", f"rename {mine}/sub/file"} <= {
        *found["changed"]
    }
    assert f"mkdir {scratch}" in _walk(limits, scratch, user=user)["changed"]


_DESTROY = """
import os, sys
for path in sys.argv[2:]:
    for attempt in (
        lambda: os.unlink(path),
        lambda: open(path, "w"),
        lambda: os.rename(path, sys.argv[1] + "/taken"),
        lambda: os.link(path, sys.argv[1] + "/linked"),
        lambda: os.rename(sys.argv[1] + "/mine", path),
        lambda: os.mknod(path + ".fifo", 0o10600),
        lambda: os.chmod(path, 0),
        lambda: os.symlink("/etc", path + ".link"),
    ):
        open(sys.argv[1] + "/mine", "w").close()
        try:
            attempt()
            print("done to", path)
        except OSError:
            pass
for special in (lambda: os.symlink("/", sys.argv[1] + "/link"), lambda: os.mkfifo(sys.argv[1] + "/pipe")):
    try:
        special()
        print("made")
    except OSError:
        print("refused")
"""


@pytest.mark.usefixtures("_protected")
def test_nothing_is_removed_or_replaced(copies: Path, user: int) -> None:
    files = [path for path in copies.rglob("file") if "work" not in path.parts]
    before = {path: (path.stat().st_mode, path.read_text()) for path in files}
    said = sandboxed.run(
        Limits(writable=(str(copies / "scratch"),)), "-c", _DESTROY, *map(str, [copies / "scratch", *files]), user=user
    )
    assert said == ("refused\n" if sandboxed.strength(user)["calls"] else "made\n") * 2
    assert {path: (path.stat().st_mode, path.read_text()) for path in copies.rglob("file") if path in before} == before
    assert {path.name for path in (copies / "scratch").iterdir()} <= {"mine", "link", "pipe"}


@pytest.mark.usefixtures("_protected")
@pytest.mark.parametrize("user", [os.geteuid()], ids=["as the tests"])
def test_every_path_of_the_home_and_the_checkout(tmp_path: Path) -> None:
    """Of the real ones, with all engine environments."""
    found = _walk(Limits(writable=(str(tmp_path),)), home(), ROOT)
    assert found["changed"] == []
    assert found["tried"] > 1000


@pytest.mark.usefixtures("_protected")
def test_a_link_in_place_of_its_folder_opens_nothing(copies: Path, user: int) -> None:
    mine = copies / "home/work/mine"
    shutil.rmtree(mine)
    mine.symlink_to(copies / "checkout", target_is_directory=True)
    assert _walk(Limits(writable=(str(mine), "/nonexistent")), copies / "checkout", user=user)["changed"] == []


@pytest.mark.usefixtures("_protected")
def test_compilers_work_in_its_own_folder(copies: Path, user: int) -> None:
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    compile_ = (
        "import os, subprocess, sys; os.environ['TMPDIR'] = sys.argv[1]; os.chdir(sys.argv[1]);"
        "open('a.c', 'w').write('int answer(void) { return 42; }');"
        "subprocess.run(['cc', '-shared', '-fPIC', 'a.c', '-o', 'a.so'], check=True, stdout=open('/dev/null', 'w'));"
        "subprocess.run(['ar', 'rcs', 'a.a', 'a.so'], check=True);"
        "import ctypes; print(ctypes.CDLL('./a.so').answer())"
    )
    limits = Limits(writable=(str(copies / "scratch"),))
    assert sandboxed.run(limits, "-c", compile_, str(copies / "scratch"), user=user) == "42\n"


@pytest.mark.usefixtures("_protected")
@pytest.mark.parametrize("user", [os.geteuid()], ids=["as the tests"])
def test_of_proc_only_names_of_threads_are_open_where_a_gpu_needs_them(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = (
        "import threading\n"
        "def say(path, text):\n"
        "    try:\n"
        "        open(path, 'w').write(text); print('written')\n"
        "    except OSError:\n"
        "        print('refused')\n"
        "own = lambda: say(f'/proc/self/task/{threading.get_native_id()}/comm', 'named')\n"
        "t = threading.Thread(target=own); t.start(); t.join()\n"
        "say('/proc/sys/kernel/core_pattern', open('/proc/sys/kernel/core_pattern').read())\n"
    )
    assert sandboxed.run(Limits(), "-c", rename) == "refused\nrefused\n"
    sandboxed.weaken(monkeypatch, [_WAYS[way], "devices.names_threads = lambda: True"])
    named, pattern = sandboxed.run(Limits(), "-c", rename).split()
    assert named == "written"
    assert pattern == "refused" or way == "landlock", "Landlock cannot tell them apart"


def test_without_mounts_and_landlock_nothing_is_promised(monkeypatch: pytest.MonkeyPatch, copies: Path) -> None:
    sandboxed.weaken(monkeypatch, [*_WAYS.values()])
    assert not sandboxed.strength()["writes"]
    assert _walk(Limits(), copies / "checkout")["changed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes disks")
def test_root_writes_no_disk(tmp_path: Path) -> None:
    disk = subprocess.run(["lsblk", "-ndpo", "NAME"], capture_output=True, text=True, check=False).stdout.split()
    if not disk or not sandboxed.strength()["signals"]:
        pytest.skip("there is no disk to open, or no Landlock")
    look = "import os, sys; os.open(sys.argv[1], os.O_RDWR)"
    assert "PermissionError" in sandboxed.run(Limits(writable=(str(tmp_path),)), "-c", look, disk[0])
