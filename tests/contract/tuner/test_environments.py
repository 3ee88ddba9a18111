"""Environments made by the real uv from a wheel made here; no index is needed."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from domain import errors
from tests.support.tuner.fixtures import MISBEHAVING
from tuner.host import catalogue, environments
from tuner.host.catalogue import EngineSpec

VARIABLE = "TUNESMITH_ENGINE_TINY_PYTHON"


def make_wheel(folder: Path, *, name: str = "tiny", value: int = 42) -> str:
    """A package of one module with a ``VALUE``; returns the wheel's sha256."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"VALUE = {value}\n")
        wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(
            f"{name}-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", f"{name}-1.0.dist-info/RECORD,,\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineSpec:
    digest = make_wheel(tmp_path)
    (tmp_path / "requirements.txt").write_text(f"tiny==1.0 \\\n    --hash=sha256:{digest}\n")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return EngineSpec(
        name="tiny", module="tests.support.tuner.misbehaving_engine", requirements=tmp_path / "requirements.txt"
    )


def test_an_environment_holds_what_is_pinned(spec: EngineSpec, tmp_path: Path) -> None:
    lines: list[str] = []
    python = environments.install(spec, tmp_path / "home", lines.append)
    answer = subprocess.run(
        [python, "-c", "import tiny, sys; print(tiny.VALUE, sys.version_info[:2])"], capture_output=True
    )
    assert answer.stdout.decode().strip() == "42 (3, 11)"
    assert [path.name for path in python.parents[1].rglob("tiny.*.pyc")] == ["tiny.cpython-311.pyc"]
    digest = hashlib.sha256(spec.requirements.read_bytes()).hexdigest()[:12]
    assert python == tmp_path / "home" / "engines" / f"tiny-{digest}" / "bin" / "python"
    assert environments.interpreter(spec, tmp_path / "home") == python
    assert lines[0].startswith("creating the tiny environment")
    assert any(line.startswith("  Installed 1 package") for line in lines)
    assert lines[-1].startswith("the tiny environment is ready")


def test_installing_again_does_nothing(spec: EngineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = environments.install(spec, tmp_path / "home")
    before = python.lstat().st_mtime_ns
    lines: list[str] = []
    # It takes no time, as no process is started.
    monkeypatch.setattr(subprocess, "Popen", lambda *_given, **_named: pytest.fail("a process was started"))
    assert environments.install(spec, tmp_path / "home", lines.append) == python
    assert lines == []
    assert python.lstat().st_mtime_ns == before


def test_other_pins_make_another_environment(spec: EngineSpec, tmp_path: Path) -> None:
    first = environments.install(spec, tmp_path / "home")
    spec.requirements.write_text(spec.requirements.read_text() + "# changed\n")
    with pytest.raises(errors.EngineNotInstalled, match="tiny") as caught:
        environments.interpreter(spec, tmp_path / "home")
    assert caught.value.hint == "Install it: tunesmith engines install tiny."
    assert environments.install(spec, tmp_path / "home") != first
    assert first.exists()


def test_a_half_made_environment_is_made_anew(spec: EngineSpec, tmp_path: Path) -> None:
    folder = environments.folder(spec, tmp_path / "home")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("half")
    with pytest.raises(errors.EngineNotInstalled):
        environments.interpreter(spec, tmp_path / "home")
    python = environments.install(spec, tmp_path / "home")
    assert subprocess.run([python, "-c", "import tiny"], check=False).returncode == 0


def test_installs_at_the_same_time_make_one_environment(spec: EngineSpec, tmp_path: Path) -> None:
    lines: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        pythons = set(pool.map(lambda _: environments.install(spec, tmp_path / "home", lines.append), range(4)))
    assert len(pythons) == 1
    assert sum(line.startswith("creating the") for line in lines) == 1


def test_a_wrong_hash_installs_nothing(spec: EngineSpec, tmp_path: Path) -> None:
    spec.requirements.write_text(f"tiny==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(errors.EngineInstallFailed, match="tiny") as caught:
        environments.install(spec, tmp_path / "home")
    assert "hash" in caught.value.details["output"].lower()
    with pytest.raises(errors.EngineNotInstalled):
        environments.interpreter(spec, tmp_path / "home")


@pytest.mark.parametrize("variable", ["UV_DEFAULT_INDEX", "PIP_INDEX_URL"])
def test_an_unreachable_index_is_named_as_the_likely_cause(
    spec: EngineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Also one that was set for pip."""
    monkeypatch.delenv("UV_NO_INDEX")
    monkeypatch.delenv("UV_FIND_LINKS")
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    monkeypatch.setenv(variable, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(errors.EngineInstallFailed) as caught:
        environments.install(spec, tmp_path / "home")
    assert "127.0.0.1:9" in caught.value.details["output"]
    assert "index is reachable" in str(caught.value.hint)


def test_a_setting_names_any_interpreter(spec: EngineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, sys.executable)
    assert environments.interpreter(spec, tmp_path / "home") == Path(sys.executable)
    assert environments.install(spec, tmp_path / "home") == Path(sys.executable)
    assert not (tmp_path / "home").exists()


def test_a_setting_that_names_no_program_is_told(
    spec: EngineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "python"))
    for ask in (environments.interpreter, environments.install):
        with pytest.raises(errors.EngineNotInstalled, match=VARIABLE):
            ask(spec, tmp_path / "home")


@pytest.fixture
def pluggable(spec: EngineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineSpec:
    """An engine that takes plugins, and the setting that adds one: a wheel beside its requirement file."""
    (tmp_path / "plugins").mkdir()
    make_wheel(tmp_path / "plugins", name="twist")
    (tmp_path / "plugins" / "plugins.txt").write_text("# ours\n./twist-1.0-py3-none-any.whl\n")
    monkeypatch.setenv(environments.PLUGIN_REQUIREMENTS, str(tmp_path / "plugins" / "plugins.txt"))
    monkeypatch.delenv("TUNESMITH_ENGINE_RELAY_PYTHON", raising=False)
    return dataclasses.replace(spec, name="relay")


def test_plugins_are_installed_beside_the_engine(pluggable: EngineSpec, spec: EngineSpec, tmp_path: Path) -> None:
    python = environments.install(pluggable, tmp_path / "home")
    answer = subprocess.run([python, "-c", "import tiny, twist; print(twist.VALUE)"], capture_output=True, text=True)
    assert answer.stdout == "42\n"
    # Engines that take no plugins are left alone.
    without = environments.install(spec, tmp_path / "home")
    assert subprocess.run([without, "-c", "import twist"], capture_output=True, check=False).returncode == 1


def test_other_plugins_make_another_environment(
    pluggable: EngineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [environments.folder(pluggable, tmp_path)]
    make_wheel(tmp_path / "plugins", name="twist", value=43)
    folders.append(environments.folder(pluggable, tmp_path))
    (tmp_path / "plugins" / "plugins.txt").write_text("twist==1.0\n")
    folders.append(environments.folder(pluggable, tmp_path))
    monkeypatch.delenv(environments.PLUGIN_REQUIREMENTS)
    folders.append(environments.folder(pluggable, tmp_path))
    assert len(set(folders)) == 4
    assert environments.folder(pluggable, tmp_path) == folders[-1]


def test_a_source_folder_counts_with_every_file(pluggable: EngineSpec, tmp_path: Path) -> None:
    source = tmp_path / "plugins" / "mine"
    (source / "mine").mkdir(parents=True)
    (source / "mine" / "__init__.py").write_text("VALUE = 1\n")
    (tmp_path / "plugins" / "plugins.txt").write_text("./mine\n")
    first = environments.folder(pluggable, tmp_path)
    (source / "mine" / "__pycache__").mkdir()
    (source / "mine" / "__pycache__" / "x.pyc").write_bytes(b"1")
    for leftover in ("mine.egg-info", "build", ".ruff_cache"):
        (source / leftover).mkdir()
        (source / leftover / "of-a-tool").write_bytes(b"1")
    assert environments.folder(pluggable, tmp_path) == first
    (source / "mine" / "__init__.py").write_text("VALUE = 2\n")
    assert environments.folder(pluggable, tmp_path) != first


def test_a_setting_for_plugins_that_names_no_file_is_told(
    pluggable: EngineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environments.PLUGIN_REQUIREMENTS, str(tmp_path / "absent.txt"))
    for ask in (environments.interpreter, environments.install):
        with pytest.raises(errors.EngineNotInstalled, match=environments.PLUGIN_REQUIREMENTS):
            ask(pluggable, tmp_path / "home")
    assert environments.PLUGIN_REQUIREMENTS in environments.doctor(pluggable, tmp_path / "home").problems[0]


def test_the_doctor_reports_a_healthy_engine(spec: EngineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_size", lambda _: 12)
    environments.install(spec, tmp_path / "home")
    health = environments.doctor(spec, tmp_path / "home")
    assert health.installed
    assert not health.custom
    assert health.size_bytes == 12
    assert health.hello
    assert health.start_seconds
    # It is another engine's module under this name.
    assert health.problems == (f"{health.python} runs the engine 'misbehaving'",)


def test_the_doctor_finds_nothing_wrong_with_the_right_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environments.variable(MISBEHAVING), sys.executable)
    health = environments.doctor(MISBEHAVING, tmp_path)
    assert health.problems == ()
    assert health.custom
    assert health.size_bytes is None
    assert health.hello
    assert health.hello["engine"] == "misbehaving"


def test_the_doctor_tells_what_is_missing(spec: EngineSpec, tmp_path: Path) -> None:
    health = environments.doctor(spec, tmp_path / "home")
    assert not health.installed
    assert health.problems == ("the tiny engine is not installed. Install it: tunesmith engines install tiny.",)


def test_the_doctor_shows_why_an_engine_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environments.variable(MISBEHAVING), sys.executable)
    monkeypatch.setenv("TUNESMITH_TEST_START", "crash")
    health = environments.doctor(MISBEHAVING, tmp_path)
    assert health.installed
    assert "exit status 1" in health.problems[0]
    assert "cannot import tvm" in health.problems


def test_an_optional_engine_is_expected_once_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = catalogue.get("openvino")
    monkeypatch.delenv(environments.variable(spec), raising=False)
    usual = sorted(catalogue.ENGINES)
    assert [each.name for each in environments.expected(tmp_path)] == usual
    installed = environments.folder(spec, tmp_path)
    installed.mkdir(parents=True)
    assert [each.name for each in environments.expected(tmp_path)] == usual
    (installed / ".complete.json").write_text("{}")
    assert [each.name for each in environments.expected(tmp_path)] == sorted([*usual, "openvino"])
    monkeypatch.setenv(environments.variable(spec), str(tmp_path / "nothing"))
    assert "openvino" in [each.name for each in environments.expected(tmp_path / "elsewhere")]


def test_every_shipped_engine_has_pins() -> None:
    for spec in (catalogue.ENGINES | catalogue.OPTIONAL).values():
        text = spec.requirements.read_text()
        assert "--hash=sha256:" in text
        assert "http" not in text
        assert spec.requirements.parent.name == spec.name
    with pytest.raises(errors.EngineNotInstalled, match="nonesuch"):
        catalogue.get("nonesuch")
