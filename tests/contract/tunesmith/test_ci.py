"""The workflows of docs/how-to/ci.md do what the page says: their steps are run in bash against a live service.

What cannot be had here is put in its place, and nothing else: ``uses:`` steps are GitHub's own; ``pip`` would ask a
package index, so it is a script that installs the client's wheel, built from this checkout, into an environment that
has the wheel's dependencies already.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.tunesmith.test_help import COMMANDS
from tests.support.api.factories import TOKEN, Service
from tests.support.tunesmith.stored import forget, tuned
from tunesmith import lockfile
from tunesmith.client import Client
from tunesmith.lockfile import Entry

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "ci.md").read_text()
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "how-to" / "ci" / "github-actions.yml").read_text())
SAMPLE = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]
GITLAB: dict[str, Any] = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel of the client, and a folder for the PATH whose ``pip`` installs it there."""
    folder = tmp_path_factory.mktemp("client")
    uv = Path(sys.executable).parent / "uv"
    build = [uv, "build", "--wheel", "--no-build-isolation", "--offline", "--python", sys.executable]
    _quietly([*build, "--out-dir", folder / "dist", ROOT], cwd=folder)
    (wheel,) = (folder / "dist").glob("tunesmith-*.whl")
    environment = folder / "env"
    _quietly([uv, "venv", "--offline", "--python", sys.executable, environment], cwd=folder)
    site = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    pip = environment / "bin" / "pip"
    options = "--offline --no-deps --python"
    pip.write_text(f'#!/bin/sh\nexec {uv} pip "$@" {options} {environment}/bin/python\n')
    pip.chmod(0o755)
    return wheel, environment / "bin"


def _quietly(command: list[Any], cwd: Path) -> None:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def repository(tmp_path: Path, onnx: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(onnx.read_bytes())
    for command in (["init", "-q"], ["add", "model.onnx"], ["commit", "-q", "-m", "A model"]):
        who = ["-c", "user.name=Someone", "-c", "user.email=someone@example.com"]
        _quietly(["git", *who, *command], cwd=folder)
    return folder


class Runner:
    """Runs steps as GitHub's does: bash with -e, variables of the workflow, files for outputs and the summary."""

    def __init__(self, url: str, folder: Path, installed: tuple[Path, Path]) -> None:
        wheel, commands = installed
        self.folder = folder
        self.variables: dict[str, Any] = dict(WORKFLOW["env"])
        self._values = {
            "vars.TUNESMITH_URL": url,
            "secrets.TUNESMITH_TOKEN": TOKEN,
            "vars.TUNESMITH_PACKAGE": str(wheel),
        }
        self.output, self.summary = folder.parent / "output", folder.parent / "summary"
        self._environment = {
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder.parent),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_RUN_ID": "4711",
            "GITHUB_SHA": "0123abcd",
        }

    def job(self, name: str) -> tuple[int, str]:
        """Status of the first step that fails, else 0; and everything that was said."""
        said = ""
        for step in WORKFLOW["jobs"][name]["steps"]:
            if "run" in step:
                status, text = self.step(step["run"])
                said += text
                if status:
                    return status, said
        return 0, said

    def step(self, script: str) -> tuple[int, str]:
        evaluated = {name: self._evaluated(str(value)) for name, value in self.variables.items()}
        environment = self._environment | evaluated
        # What GitHub makes of "shell: bash".
        done = subprocess.run(

            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder, env=environment, text=True, check=False, timeout=120,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    def _evaluated(self, text: str) -> str:
        return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda match: self._values[match[1]], text)


@pytest.fixture
def runner(url: str, repository: Path, installed: tuple[Path, Path]) -> Runner:
    return Runner(url, repository, installed)


def test_the_workflow_from_a_first_lock_file_to_a_refusal(
    runner: Runner, repository: Path, service: Service, client: Client
) -> None:
    model = client.upload(repository / "model.onnx")
    good = tuned(service, client, model, gain=2.0)
    lock, bundle = repository / "tunesmith.lock", repository / "bundle.tar"

    status, said = runner.job("bundle")
    assert (status, "error[not_locked]" in said) == (1, True), said

    _pull(runner)
    assert runner.output.read_text() == "changed=true\n"
    assert hashlib.sha256(bundle.read_bytes()).hexdigest() == good.digest
    before = lock.read_bytes()

    tuned(service, client, model, gain=3.0)
    bundle.unlink()
    status, said = runner.job("bundle")
    assert status == 0, said
    assert hashlib.sha256(bundle.read_bytes()).hexdigest() == good.digest, "what is locked, not what is best"
    assert lock.read_bytes() == before

    for artifact in list(client.artifacts(model=model)):
        forget(service, artifact.id)
    tuned(service, client, model, gain=1.5)
    status, said = _pull(runner, expect=1)
    assert "error[artifact_slower]: the best bundle is 33.3 % slower than the locked one; 5 % is allowed" in said
    assert "latency    0.400 ms → 0.533 ms  (33.3 % slower)" in said
    assert lock.read_bytes() == before


@pytest.mark.usefixtures("worker")
def test_the_workflow_tunes_and_proposes(runner: Runner, repository: Path, client: Client) -> None:
    status, said = runner.job("renew")
    assert status == 0, said
    assert "changed=true" in runner.output.read_text()
    (job,) = client.jobs(group="ci-4711", label="commit=0123abcd")
    assert (job.state, job.data["budget"]["seconds"]) == ("succeeded", 1200.0)
    assert "Execution time summary" in runner.summary.read_text()
    assert f'job = "{job.id}"' in (repository / "tunesmith.lock").read_text()
    runner.output.unlink()
    who = ["git", "-c", "user.name=Someone", "-c", "user.email=someone@example.com"]
    _quietly([*who, "add", "tunesmith.lock"], cwd=repository)
    _quietly([*who, "commit", "-q", "-m", "Take the better tuned bundle"], cwd=repository)
    status, said = runner.job("bundle")
    assert status == 0, said
    assert "unchanged" in said


@pytest.mark.usefixtures("worker")
def test_a_model_that_leaves_sizes_open_is_given_them(runner: Runner, repository: Path, client: Client) -> None:
    (repository / "model.onnx").write_bytes(b"pictures")
    status, said = runner.job("renew")
    assert (status, "error[shape_required]" in said) == (5, True), said
    runner.variables["INPUT_SHAPES"] = "--input-shape x:1,3,48,192"
    status, said = runner.job("renew")
    assert status == 0, said
    (job,) = client.jobs()
    assert job.data["input_shapes"] == {"x": [1, 3, 48, 192]}
    assert "input_shapes = " in (repository / "tunesmith.lock").read_text()
    status, said = runner.job("bundle")
    assert (status, "unchanged" in said) == (0, True), said


def _pull(runner: Runner, *, expect: int = 0) -> tuple[int, str]:
    """The steps of ``renew`` behind tuning, after installing."""
    scripts = [step["run"] for step in WORKFLOW["jobs"]["renew"]["steps"] if "run" in step]
    chosen = [script for script in scripts if "tunesmith tune" not in script]
    assert len(chosen) == len(scripts) - 1
    said = ""
    for script in chosen:
        status, text = runner.step(script)
        said += text
        if status:
            break
    assert status == expect, said
    return status, said


def test_the_wheel_holds_the_client_alone(installed: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(installed[0]) as wheel:
        names = wheel.namelist()
    assert "tunesmith/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tunesmith"}


def test_bash_completes_the_installed_command(installed: tuple[Path, Path], tmp_path: Path) -> None:
    script = (
        "tunesmith --install-completion bash >/dev/null; source ~/.bashrc; "
        'COMP_WORDS=(tunesmith records ex) COMP_CWORD=2; _tunesmith_completion tunesmith; echo "${COMPREPLY[@]}"'
    )
    environment = {"PATH": f"{installed[1]}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("export", "")


def test_steps_are_all_run_or_githubs_own() -> None:
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    assert {step["uses"].split("/")[0] for step in steps if "uses" in step} == {"actions", "peter-evans"}
    assert [step for step in steps if ("run" in step) == ("uses" in step)] == []
    assert WORKFLOW["defaults"] == {"run": {"shell": "bash"}}
    assert all("timeout-minutes" in job for job in WORKFLOW["jobs"].values())
    # An expression inside a script would be pasted into it: text of others must come as variables.
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("name", ["bundle", "renew"])
def test_the_gitlab_snippet_uses_what_exists(name: str) -> None:
    commands = [line for line in GITLAB[name]["script"] if line.startswith("tunesmith ")]
    assert commands
    for command in commands:
        _, verb, *words = shlex.split(command)
        known = {option for each in COMMANDS[verb].params for option in each.opts}
        assert {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} <= known, command
        # Both workflows ask the same things.
        assert verb in str(WORKFLOW["jobs"][name])


def test_the_page_tells_the_codes_and_fields() -> None:
    for word in ("artifact_slower", "artifact_missing", "not_locked", "artifact_not_found", "invalid_lock"):
        assert f"`{word}`" in PAGE
    shown = re.findall(r"^(\w+) = ", SAMPLE.split("[[artifact]]")[1], re.MULTILINE)
    assert shown == [each.name for each in fields(Entry) if each.name not in ("device", "input_shapes")]


def test_the_sample_is_a_lock_file(tmp_path: Path) -> None:
    path = tmp_path / "tunesmith.lock"
    path.write_text(SAMPLE)
    (entry,) = lockfile.read(path).values()
    assert (entry.artifact, entry.median_seconds) == ("a-8c1f…", 0.000527)
