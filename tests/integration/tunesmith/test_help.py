"""The command line before it does anything: what exists, what it says of itself, how quickly."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import tunesmith
from domain.jobs import BundleFormat, JobState, Precision, RunnerKind, Tuner
from tests.support.tunesmith.commands import run
from tunesmith import job_draft
from tunesmith.cli import options
from tunesmith.cli.main import app

ROOT = Path(__file__).parents[3]
DO_AND_TELL_NOTHING = {"serve", "worker", "engines install", "migrate"}
NEED_NO_EXAMPLE = {
    "models", "groups", "workers", "worker", "engines list", "token list", "token revoke", "data list", "data rm",
}  # fmt: skip
HEAVY = {
    "httpx", "rich", "fastapi", "sqlalchemy", "celery", "pydantic", "starlette", "asyncio", "ssl", "http.client",
    "urllib.request", "tempfile", "zipfile", "tarfile", "email", "tomllib",
    "random", "statistics", "multiprocessing", "sqlite3",
    "tunesmith.client", "tunesmith.transport", "tunesmith.lockfile",
    "domain", "storage", "tuner", "worker", "api",
}  # fmt: skip
"""None of these is needed to say what a command does. All together they take most of a second."""


def commands(group: Any = None, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


COMMANDS = dict(commands())


def test_everything_that_lists_or_shows_has_json() -> None:
    silent = {name for name, command in COMMANDS.items() if not any("--json" in each.opts for each in command.params)}
    assert silent == DO_AND_TELL_NOTHING


def test_every_option_is_explained() -> None:
    unexplained = [
        f"{name} {option.name}"
        for name, command in COMMANDS.items()
        for option in command.params
        if option.name != "help" and not option.help
    ]
    assert unexplained == []
    without = {name for name, command in COMMANDS.items() if "Examples:" not in (command.epilog or "")}
    assert without == NEED_NO_EXAMPLE


def test_words_that_may_be_several_or_none_look_so(capsys: pytest.CaptureFixture[str]) -> None:
    for words, placeholder in ((["doctor"], "[CHECK…]"), (["engines", "install"], "[NAME…]")):
        assert placeholder in run(capsys, *words, "--help")[1].splitlines()[0]


def test_examples_are_commands_with_options_that_exist() -> None:
    shown = 0
    for name, command in COMMANDS.items():
        text = (command.epilog or "").replace("\\\n", " ")
        for line in re.findall(r"^ +tunesmith ([^|\n]*)", text, re.MULTILINE):
            assert line.startswith(name), line
            known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
            assert set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", line)) <= known, line
            shown += 1
    assert shown > 20


@pytest.mark.contract
@pytest.mark.parametrize("columns", [60, 80])
def test_help_fits(columns: int) -> None:
    """In a process of its own, as the width is looked at once."""
    code = f"from tunesmith.cli.main import main\nfor name in {list(COMMANDS)!r}: main([*name.split(), '--help'])"
    environment = {**os.environ, "COLUMNS": str(columns)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment, check=True
    )
    as_they_are = {line.strip() for command in COMMANDS.values() for line in (command.epilog or "").splitlines()}
    told = [line for line in done.stdout.splitlines() if line.strip() not in as_they_are]
    assert len(told) > 100
    # One word may be longer than what is left for it.
    assert [line for line in told if len(line) > columns and len(line.split()) > 2] == []


def test_the_client_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"tunesmith {tunesmith.__version__}\n", "")
    for arguments in (("--version", "--json"), ("--json", "--version")):
        status, out, _ = run(capsys, *arguments)
        assert (status, json.loads(out)) == (0, {"version": tunesmith.__version__})


@pytest.mark.parametrize("arguments", [("--json",), ("--json", "jobs")])
def test_json_alone_is_no_request(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    status, out, told = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert told.startswith("error[usage]: --json goes after a command")


@pytest.mark.contract
@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["jobs", "--help"], ["tune", "--help"], ["pull", "--help"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"import sys; before = set(sys.modules); from tunesmith.cli.main import main; main({arguments!r}); "
        f"sys.exit(', '.join(sorted({HEAVY!r} & (set(sys.modules) - before))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.contract
def test_the_client_of_the_command_line_loads_no_rich() -> None:
    """An address that is none is refused once the client is loaded, before anything is sent."""
    code = (
        "import sys; from tunesmith.cli.main import main; status = main(['jobs']); "
        "print(status, *sorted({'httpx', 'rich', 'click', 'pygments'} & set(sys.modules)))"
    )
    environment = {**os.environ, "TUNESMITH_URL": "nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert done.stdout == "3 httpx\n", done.stderr


def offered(*words: str, shell: str = "bash", home: Path | None = None) -> list[str]:
    """What Tab offers for the last of the words."""
    environment = {
        **os.environ,
        **({"TUNESMITH_HOME": str(home)} if home else {}),
        "_TUNESMITH_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    command = [sys.executable, "-m", "tunesmith"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.contract
def test_tab_completes_commands_options_and_words(tmp_path: Path) -> None:
    assert "tune" in offered("tunesmith", "tu")
    assert offered("tunesmith", "jobs", "--st") == ["--state"]
    assert offered("tunesmith", "jobs", "--state", "c") == ["canceling", "canceled"]
    assert offered("tunesmith", "tune", "x", "--tuner", "a") == ["auto", "autotvm", "ansor"]


def test_tab_knows_the_services_words() -> None:
    for offered_words, kind in (
        (options.STATES, JobState),
        (job_draft.TUNERS, Tuner),
        (job_draft.PRECISIONS, Precision),
        (job_draft.RUNNERS, RunnerKind),
        (job_draft.BUNDLE_FORMATS, BundleFormat),
    ):
        assert set(offered_words) == {choice.value for choice in kind}


@pytest.mark.contract
def test_tab_completes_jobs(capsys: pytest.CaptureFixture[str], url: str, onnx: Path, tmp_path: Path) -> None:
    job = run(capsys, "tune", onnx, "--no-wait")[1].strip()
    assert offered("tunesmith", "status", "j-", home=tmp_path) == [job]
    assert offered("tunesmith", "status", "x", home=tmp_path) == []


@pytest.mark.contract
def test_tab_is_silent_without_a_server(tmp_path: Path) -> None:
    assert offered("tunesmith", "cancel", "j-", home=tmp_path) == []
    (tmp_path / "server.json").write_text('{"url": "http://127.0.0.1:9", "token": "t"}')
    assert offered("tunesmith", "cancel", "j-", home=tmp_path) == []


@pytest.mark.contract
def test_completion_can_be_shown(tmp_path: Path) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    for shell in ("bash", "zsh", "fish"):
        command = [sys.executable, "-m", "tunesmith", "--show-completion", shell]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=True)
        assert "_TUNESMITH_COMPLETE" in done.stdout
