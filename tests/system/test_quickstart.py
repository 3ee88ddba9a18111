"""A new user follows ``docs/tutorials/quickstart.md`` word for word, and gets there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from bench import zoo
from tests.support import serving
from tests.support.tuner.engines.fixtures import home as engines_home

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"```sh( \w+)?\n(.*?)```", re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """What each is for, empty for one that is just run, and its commands."""
    text = (ROOT / "docs" / "tutorials" / "quickstart.md").read_text()
    return [(kind.strip(), commands) for kind, commands in _BLOCK.findall(text)]


def test_it_has_the_commands_that_this_test_runs() -> None:
    found = blocks()
    assert [kind for kind, _ in found] == ["demo", "serve", "", "", "", ""]
    words = " ".join(commands for _, commands in found)
    for command in ("./run demo", "./run serve", "cli tune", "cli jobs", "cli pull", "cli run"):
        assert command in words


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with ``./run``, and a home folder that has what the demo leaves there."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("envs", "engines"):
        (home / name).symlink_to(engines_home() / name)
    zoo.fetch(zoo.MODELS["ppocr-cls"], home)
    (tmp_path / "run").write_text(f'#!/bin/sh\nexec "{ROOT}/run" "$@"\n')
    (tmp_path / "run").chmod(0o755)
    return tmp_path


@pytest.mark.engine
@pytest.mark.timeout(1800)
def test_whoever_follows_it_gets_there(checkout: Path) -> None:
    """The demo has a test of its own; here its model is fetched, and budgets are shorter."""
    environment = {**os.environ, "TUNESMITH_HOME": str(checkout / "home"), "TUNESMITH_PORT": "0"}
    environment |= {"TUNESMITH_LOCK_FOLDER": str(checkout / "locks"), "TUNESMITH_BENCHMARK_SECONDS": "0.5"}
    for name in ("TUNESMITH_TOKEN", "TUNESMITH_URL", "TUNESMITH_BROKER_URL", "TUNESMITH_DATABASE_URL"):
        environment.pop(name, None)
    commands = {kind: text for kind, text in blocks() if kind}
    command = ["sh", "-euc", f"exec {commands['serve']}"]
    with serving.serving(environment, log=checkout / "serve.txt", command=command, folder=checkout):
        said = [shell(text, checkout, environment) for kind, text in blocks() if not kind]
    tuned, listed, _pulled, timed = said
    assert "Execution time summary" in tuned
    assert "succeeded" in listed
    assert "Execution time summary" in timed
    assert (checkout / "best.tar").stat().st_size > 10_000


def shell(commands: str, folder: Path, environment: dict[str, str]) -> str:
    quick = commands.replace("--seconds 60", "--seconds 4")
    done = subprocess.run(
        ["sh", "-euc", quick], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, f"{quick}\n{done.stdout}\n{done.stderr}"
    return done.stdout
