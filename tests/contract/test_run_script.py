"""The script that a newcomer runs first: what it says when something is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.smoke

ROOT = Path(__file__).parents[2]
_TOOLS = ("sh", "dirname", "mkdir", "cat", "cksum", "tr", "rm", "touch")
_SERVERS = ("initdb", "redis-server")
_FOR_C = ("aarch64-linux-gnu-gcc", "qemu-aarch64", "valgrind")


def run(*arguments: str, path: Path, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(path), "HOME": str(home), "TUNESMITH_HOME": str(home / "tunesmith"), **more}
    return subprocess.run([ROOT / "run", *arguments], env=environment, text=True, capture_output=True, check=False)


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with the shell's own tools and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in _TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    return folder


def test_help_lists_every_command(bare_path: Path, tmp_path: Path) -> None:
    answer = run("help", path=bare_path, home=tmp_path)
    assert answer.returncode == 0
    for command in ("demo", "test", "serve", "bench", "api", "cli", "lint", "pin"):
        assert f"\n  {command} " in answer.stdout


def test_unknown_command_is_a_usage_error(bare_path: Path, tmp_path: Path) -> None:
    answer = run("tunne", path=bare_path, home=tmp_path)
    assert answer.returncode == 2
    assert "usage: ./run COMMAND" in answer.stderr


def test_missing_compiler_is_said_before_anything_is_installed(bare_path: Path, tmp_path: Path) -> None:
    answer = run("demo", path=bare_path, home=tmp_path)
    assert answer.returncode == 3
    assert "a C compiler is missing" in answer.stderr
    assert "hint: " in answer.stderr
    assert not (tmp_path / "tunesmith" / "envs").exists()


def test_missing_python_is_said_plainly(bare_path: Path, tmp_path: Path) -> None:
    answer = run("cli", "jobs", path=bare_path, home=tmp_path)
    assert answer.returncode == 3
    assert "Python 3.11 is missing" in answer.stderr
    assert "python3.11-venv" in answer.stderr


def installed(name: str, home: Path, python: str, *more: str) -> Path:
    """An environment that looks complete, with a shell script as its interpreter.

    It has what the files of its name and of ``more`` pin, in that order.
    """
    requirements = "".join((ROOT / "requirements" / f"{each}.txt").read_text() for each in (*more, name))
    checksum = subprocess.run(["cksum"], input=requirements, capture_output=True, text=True, check=True)
    folder = home / "tunesmith" / "envs" / f"{name}-{checksum.stdout.replace(' ', '').strip()}"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(f"#!/bin/sh\n{python}\n")
    (folder / "bin" / "python").chmod(0o755)
    (folder / ".complete").touch()
    return folder


def prepared(path: Path, home: Path, *tools: str) -> Path:
    """Add a compiler, these tools, and what ``./run test`` installs; the tests' own environment tells what it runs."""
    for tool in ("cc", *tools):
        (path / tool).symlink_to("/bin/true")
    installed("app", home, "exit 0")
    installed("uv", home, "exit 0")
    return installed("dev", home, 'echo "$*"', "app")


def advised(path: Path, home: Path, *missing: str) -> list[list[str]]:
    """The packages that are advised while these tools are missing, then as they are added one by one."""
    told = []
    for tool in (*missing, None):
        answer = run("test", "-x", path=path, home=home)
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.splitlines()[-1] == "-m pytest -x"
        told.append([line.partition("apt-get install ")[2] for line in answer.stderr.splitlines()])
        if tool:
            (path / tool).symlink_to("/bin/true")
    return told


def test_what_is_fetched_later_asks_pips_index_too(bare_path: Path, tmp_path: Path) -> None:
    (bare_path / "cc").symlink_to("/bin/true")
    installed("app", tmp_path, 'echo "$UV_DEFAULT_INDEX|$*"')
    installed("uv", tmp_path, '[ "$*" = "-m pip config get global.index-url" ] && echo https://index.example/simple')
    answer = run("serve", path=bare_path, home=tmp_path)
    engines, serve = answer.stdout.splitlines()
    assert engines == "https://index.example/simple|-m tunesmith engines install"
    assert serve == "https://index.example/simple|-m tunesmith serve"
    answer = run("serve", path=bare_path, home=tmp_path, UV_DEFAULT_INDEX="https://own.example")
    assert answer.stdout.startswith("https://own.example|")


def test_installed_environment_is_used_as_it_is(bare_path: Path, tmp_path: Path) -> None:
    """The caller's folder stays the working folder, and packages lying there are never imported."""
    installed("app", tmp_path, 'echo "$PYTHONPATH|$PYTHONSAFEPATH|$PWD|$TUNESMITH_HOME|$*"')
    answer = run("cli", "jobs", "--json", path=bare_path, home=tmp_path)
    assert answer.stdout.strip() == f"{ROOT}|1|{Path.cwd()}|{tmp_path / 'tunesmith'}|-m tunesmith jobs --json"
    assert answer.stderr == ""


def test_a_missing_browser_is_told_and_stops_nothing(bare_path: Path, tmp_path: Path) -> None:
    prepared(bare_path, tmp_path, *_FOR_C, *_SERVERS)
    without = run("test", "-x", path=bare_path, home=tmp_path)
    assert without.returncode == 0
    assert "apt-get install chromium" in without.stderr
    (bare_path / "my-chromium").symlink_to("/bin/true")
    assert run("test", "-x", path=bare_path, home=tmp_path, TUNESMITH_CHROMIUM="my-chromium").stderr == ""
    (bare_path / "chromium").symlink_to("/bin/true")
    assert run("test", "-x", path=bare_path, home=tmp_path).stderr == ""


def test_missing_tools_for_c_are_told_and_stop_nothing(bare_path: Path, tmp_path: Path) -> None:
    prepared(bare_path, tmp_path, "chromium", *_SERVERS)
    valgrind = "valgrind libc6-dbg"
    told = advised(bare_path, tmp_path, *_FOR_C)
    assert told == [["gcc-aarch64-linux-gnu qemu-user", valgrind], ["qemu-user", valgrind], [valgrind], []]


def test_missing_servers_are_told_and_stop_nothing(bare_path: Path, tmp_path: Path) -> None:
    prepared(bare_path, tmp_path, "chromium", *_FOR_C)
    told = advised(bare_path, tmp_path, *_SERVERS)
    # Debian's are found where Debian puts them, whatever the PATH is.
    has_debians = any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    assert told == [["redis-server" if has_debians else "postgresql redis-server"], ["redis-server"], []]


@pytest.mark.parametrize(
    ("argument", "selected"),
    [
        ("unit", "tests/unit -m unit"),
        ("--all", "--cov --cov-report=term:skip-covered --cov-report=html"),
        ("", "-m unit or integration or smoke"),
    ],
)
def test_each_tier_has_a_command(bare_path: Path, tmp_path: Path, argument: str, selected: str) -> None:
    dev = prepared(bare_path, tmp_path, "chromium", *_FOR_C, *_SERVERS)
    for tool in ("ruff", "mypy", "lint-imports"):
        (dev / "bin" / tool).symlink_to("/bin/true")
    answer = run("test", *filter(None, [argument]), path=bare_path, home=tmp_path)
    assert answer.stdout.splitlines()[-1] == f"-m pytest -n 2 --dist loadfile --no-loadscope-reorder {selected}"
    assert ("lint: clean" in answer.stderr) == (argument != "unit")


@pytest.mark.parametrize("script", ["run", ".ci/run"])
def test_script_is_posix_shell(script: str) -> None:
    shell = shutil.which("dash") or "sh"
    assert subprocess.run([shell, "-n", ROOT / script], check=False).returncode == 0
    assert (ROOT / script).read_text().startswith("#!/bin/sh\n")
