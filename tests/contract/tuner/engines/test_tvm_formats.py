"""What TVM itself loads: the files of the formats for it, on both engines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin, start
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

FILES = {"tvm": "mod.so", "object": "mod.tar", "system-lib": "mod.a"}


@pytest.fixture(scope="module", params=list(FILES))
def built(twin: Twin, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a build, and the file of its format."""
    folder = tmp_path_factory.mktemp(request.param)
    assert FILES[request.param] in asking.build(twin.session, twin.place, folder, format=request.param)["files"]
    return folder, FILES[request.param]


def test_an_engine_runs_what_tvm_loads(
    twin: Twin,
    built: tuple[Path, str],
    reference: EngineSession,
    prepared: Path,
    inputs: list[Path],
    engine_logs: Path,
    tmp_path: Path,
) -> None:
    folder, file = built
    params: dict[str, Any] = {"bundle": str(folder), "outputs": str(tmp_path / "actual.npz"), "threads": 1}
    with start(twin.name, engine_logs / f"{twin.name}-{file}.log") as engine:
        for given in inputs[:2]:
            answer = engine.request("run", {**params, "inputs": str(given), "file": file}, timeout=60)
            assert answer["runtime"] == "TVM"
            [output] = asking.compare_with_model(reference, prepared, given, tmp_path / "actual.npz")
            assert output["passed"]
        loaded = Path(f"/proc/{engine.pid}/maps").read_text()
        assert "libmodel.so" not in loaded
        refused = asking.refusal(engine, "run", {**params, "inputs": str(inputs[0]), "file": "libmodel.so"})
        assert refused.engine_code == "invalid_option"


def test_their_code_checks_its_arguments(built: tuple[Path, str]) -> None:
    folder, _ = built
    assert re.search(b"Assert fail|expected to match", (folder / "mod.so").read_bytes())
