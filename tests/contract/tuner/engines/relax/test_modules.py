"""Tensor functions as IRModule JSON: what is taken, what is refused, and that what is taken builds and runs right."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.models import ModelFormat, TensorSpec
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import home, start
from tuner.host.catalogue import ROOT
from tuner.host.inspection import Inspector
from tuner.host.session import EngineSession
from tuner.host.settings import TunerSettings

pytestmark = pytest.mark.engine

REFUSED = {
    "gather": "depends on buffer contents",
    "beyond_the_end": "cannot prove that the index v_i + 1 is from 0 to below 16",
    "beyond_by_overflow": "cannot prove that v * 65536 * 65536 fits in int32",
    "through_a_narrow_cast": "cannot prove that v_i fits in int8",
    "guarded_by_memory": "cannot prove that the index v_i + 8",
    "guarded_by_select": "cannot prove that the index v_i + 8",
    "host_call": "calls tirx.call_pure_extern",
    "packed_call": "calls tirx.tvm_call_packed",
    "intrinsic_call": "calls tirx.call_llvm_pure_intrin",
    "dynamic_shape": "sizes must be static",
    "imported_code": "attribute pragma_import_c",
    "pragma": "a loop is already scheduled",
    "threaded": "a loop is already scheduled",
    "rule_by_name": "annotation schedule_rule",
    "other_regions": "accesses regions that it does not declare",
    "written_first": "its last parameters must be the buffers that it writes",
    "reads_before_writing": "reads a buffer before it writes it",
    "two_functions": "it has 2 functions",
    "huge": "its buffers have more than",
}
TAKEN = ("matmul", "padded_convolution", "transposed_convolution", "softmax", "two_outputs", "scaled")


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("functions")
    asking.python("relax", ROOT / "tests/support/tuner/engines/relax/functions.py", folder)
    return folder


@pytest.fixture(scope="module")
def inspector() -> Inspector:
    return Inspector.installed(ModelFormat.IRMODULE, home(), TunerSettings())


def _inspect(relax: EngineSession, path: Path) -> dict[str, Any]:
    return relax.request("inspect", {"path": str(path)}, timeout=60)


@pytest.mark.parametrize("name", TAKEN)
def test_a_tensor_function_builds_and_runs_as_its_plain_build_does(
    relax: EngineSession, reference: EngineSession, functions: Path, target: str, tmp_path: Path, name: str
) -> None:
    path = functions / f"{name}.json"
    facts = _inspect(relax, path)
    assert facts["operators"] == {name: 1}
    model = tmp_path / "prepared.json"
    ready = relax.request("prepare", {"path": str(path), "out_path": str(model)}, timeout=60)
    assert ready["inputs"] == facts["inputs"]
    inputs = asking.make_inputs(reference, facts["inputs"], tmp_path)
    build = {"model": str(model), "target": target, "threads": 1, "tuner": None, "options": {}}
    asking.build(relax, build, tmp_path / "untuned")
    relax.request("compile_plain", {"model": str(model), "out_dir": str(tmp_path / "plain")}, timeout=120)
    for built in ("plain", "untuned"):
        params = {"bundle": str(tmp_path / built), "inputs": str(inputs), "outputs": str(tmp_path / f"{built}.npz")}
        assert relax.request("run", {**params, "threads": 1}, timeout=60)["outputs"] == facts["outputs"]
    compared = asking.compare(reference, tmp_path / "plain.npz", tmp_path / "untuned.npz")
    assert [each["passed"] for each in compared] == [True] * len(facts["outputs"])


def test_inputs_and_outputs_are_the_buffers_that_are_read_and_written(inspector: Inspector, functions: Path) -> None:
    facts = inspector.inspect(functions / "matmul.json")
    assert facts.format is ModelFormat.IRMODULE
    assert facts.inputs == (
        TensorSpec(name="A", dtype="float32", shape=(32, 48)),
        TensorSpec(name="B", dtype="float32", shape=(48, 32)),
    )
    assert facts.outputs == (TensorSpec(name="C", dtype="float32", shape=(32, 32)),)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_on_the_list_is_refused(relax: EngineSession, functions: Path, name: str) -> None:
    for method in ("inspect", "check", "compile_plain"):
        path = str(functions / f"{name}.json")
        refused = asking.refusal(relax, method, {"path": path, "model": path, "out_dir": str(functions)})
        assert (refused.engine_code, refused.hint is not None) == ("invalid_model", True)
        assert "the module was rejected" in refused.message
        assert REFUSED[name] in refused.message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"import os",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"root_index": 0, "nodes": []}',
        b'{"root_index": 0, "nodes": [{"type": "ir.IRModule"}]}',
        b'{"root_index": 1, "nodes": [{"type": "ffi.Function", "data": "os.system"}, {"type": "ir.IRModule"}]}',
        b'{"root_index": 0, "nodes": [{"type": "ir.IRModule", "data": {"functions": 0}}]}',
        b'{"root_index": 0, "nodes": [{"type": "ir.IRModule", "data": {"functions": 99}}]}',
    ],
)
def test_other_text_is_no_module(relax: EngineSession, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    assert asking.refusal(relax, "inspect", {"path": str(path)}).engine_code == "invalid_model"


def test_a_refusal_says_what_is_wrong_and_where_to_read_on(inspector: Inspector, functions: Path) -> None:
    with pytest.raises(errors.InvalidModel, match=r"it calls tirx\.call_pure_extern") as failure:
        inspector.inspect(functions / "host_call.json")
    assert "docs/how-to/irmodules.md" in (failure.value.hint or "")


def test_a_type_said_twice_is_judged_as_it_is_read(relax: EngineSession, functions: Path, tmp_path: Path) -> None:
    text = (functions / "matmul.json").read_text()
    path = tmp_path / "twice.json"
    path.write_text(text.replace('"type":"ffi.String"', '"type":"ffi.Function","type":"ffi.String"', 1))
    assert path.read_text() != text
    assert _inspect(relax, path)["operators"] == {"matmul": 1}


class _Victim:
    """An engine to send hostile modules to; a new one whenever it crashes."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._session = start("relax", log)
        self.crashes = 0
        self.refusals: set[str] = set()

    def inspect(self, path: Path) -> dict[str, Any] | None:
        try:
            return _inspect(self._session, path)
        except errors.EngineRequestFailed as error:
            self.refusals.add(error.engine_code)
        except errors.EngineCrashed:
            self.crashes += 1
            self._session = start("relax", self._log)
        return None

    def close(self) -> None:
        self._session.close()


@pytest.fixture
def victim(engine_logs: Path) -> Iterator[_Victim]:
    engine = _Victim(engine_logs / "victim.log")
    yield engine
    engine.close()


def test_broken_modules_are_refused_or_crash_the_child_alone(victim: _Victim, functions: Path, tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311 - mutations, not secrets
    good = [json.loads((functions / f"{name}.json").read_text()) for name in ("matmul", "padded_convolution")]
    path = tmp_path / "mutant.json"
    for _ in range(250):
        graph = json.loads(json.dumps(chance.choice(good)))
        for _ in range(chance.choice([1, 1, 1, 3])):
            _mutate(graph["nodes"], chance)
        path.write_text(json.dumps(graph))
        victim.inspect(path)
    assert victim.refusals == {"invalid_model"}
    assert victim.crashes < 25, "most of what TVM cannot read is refused before it is made into objects"


def _mutate(nodes: list[dict[str, Any]], chance: random.Random) -> None:
    node = chance.choice(nodes)
    data = node.get("data")
    kinds = [each["type"] for each in nodes]
    number = chance.choice([0, 1, -1, 2**31, 2**62, 10**30, chance.randrange(len(nodes))])
    if isinstance(data, dict) and data:
        data[chance.choice(list(data))] = chance.choice([number, None, "x", [], 0.5])
    elif isinstance(data, list) and data:
        data[chance.randrange(len(data))] = number
    elif "data" in node:
        node["data"] = chance.choice([number, None, "x", True])
    else:
        node["type"] = chance.choice(kinds)
