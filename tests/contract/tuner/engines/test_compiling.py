"""Compiled files, of both engines that compile: what runs them, what they answer, and what is refused."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from domain import cpus
from domain.models import NOT_IMPORTED
from domain.targets import machine_of
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin
from tuner.engines.runtime import targets
from tuner.engines.runtime.library import kernels
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

TVM = {"relay": "0.19.0", "relax": "0.27.0.post1"}
ANNOUNCED = {
    "relay": {"kinds": ["llvm"], "tuners": ["ansor", "autotvm"]},
    "relax": {"kinds": ["llvm", "cuda"], "tuners": ["metaschedule"]},
}


def test_hello_tells_toolchain_and_cpu(twin: Twin) -> None:
    hello = twin.session.hello
    assert hello["toolchain"] == {"engine": twin.name, "tvm": TVM[twin.name], "llvm": "22"}
    assert hello["mcpu"] in hello["cpus"]
    assert set(hello["cpus"]) == cpus.names(machine_of(platform.machine())), "renew domain/cpus.py"
    assert {name: hello[name] for name in ("kinds", "tuners")} == ANNOUNCED[twin.name]


FEATURES = """
import json
import tvm
from tuner.engines.runtime import targets
found = set()
for triple in ("x86_64-linux-gnu", "aarch64-linux-gnu"):
    for cpu in targets.known_cpus(tvm, tvm.target.Target({"kind": "llvm", "mtriple": triple})):
        target = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": cpu})
        found |= set(map(str, tvm.target.codegen.llvm_get_cpu_features(target)))
print(json.dumps(sorted(found)))
"""
VECTORS = re.compile(r"(s?sse|avx|amx|xop|fma|f16c|gfni|sve|neon|dotprod|i8mm|bf16)")
EVERYWHERE_OR_ON_REQUEST = {
    *("sse", "sse2", "avx10.1", "avx10.2", "avx512vp2intersect"),
    *("sve-aes", "sve-bitperm", "sve-sha3", "sve-sm4"),
}


def test_libraries_look_for_all_vector_instructions_that_llvm_knows(twin: Twin) -> None:
    found = set(filter(VECTORS.match, asking.told_inside(twin.name, FEATURES)))
    assert found - targets.INSTRUCTIONS == EVERYWHERE_OR_ON_REQUEST


@pytest.mark.smoke
def test_compiled_agrees_with_the_reference(
    twin: Twin, reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    for path in inputs:
        params = {"bundle": str(twin.untuned), "inputs": str(path), "outputs": str(tmp_path / "a.npz"), "threads": 1}
        answer = twin.session.request("run", {**params, "number": 2, "repeat": 3}, timeout=60)
        assert answer["outputs"] == [{"name": "scores", "dtype": "float32", "shape": [1, 5]}]
        assert len(answer["samples"]) == 3
        [output] = asking.compare_with_model(reference, prepared, path, tmp_path / "a.npz")
        assert (output["output"], output["passed"]) == ("scores", True)


@pytest.mark.smoke
def test_time_gives_one_sample_per_repeat(twin: Twin, inputs: list[Path]) -> None:
    params = {"bundle": str(twin.untuned), "inputs": str(inputs[0]), "threads": 1, "number": 3, "repeat": 5}
    samples = twin.session.request("time", params, timeout=60)["samples"]
    assert len(samples) == 5
    assert all(0 < sample < 0.1 for sample in samples)


@pytest.mark.parametrize(
    ("target", "lanes"),
    [
        ("llvm -mcpu=znver4", 16),
        ("llvm -mcpu=znver3", 8),
        ("llvm", 4),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", 4),
        ("llvm -mcpu=nonesuch", None),
        ("cuda -arch=sm_90", None),
    ],
)
def test_check_tells_the_lanes_of_the_targets_vectors(
    twin: Twin, prepared: Path, target: str, lanes: int | None
) -> None:
    answer = twin.session.request("check", {"model": str(prepared), "target": target, "threads": 1}, timeout=60)
    assert (answer["operators"]["Conv"], answer["lanes"]) == (2, lanes)
    assert "lanes" not in twin.session.request("check", {"model": str(prepared)}, timeout=60)


def test_a_build_tells_how_far_it_is(twin: Twin, tmp_path: Path) -> None:
    told: list[dict[str, object]] = []
    twin.session.request(
        "compile",
        {**twin.place, "out_dir": str(tmp_path / "bundle")},
        timeout=120,
        on_event=lambda kind, data: told.append(data) if kind == "progress" else None,
    )
    [generated] = [each for each in told if each["step"] == "generate"]
    assert (generated["done"], isinstance(generated["total"], int)) == (0, True)
    assert int(str(generated["total"])) > 1


def test_a_folder_compiled_into_again_is_read_again(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    other, _ = asking.prepare(reference, models.reduce_mean_18(), tmp_path)
    for model, names in ((twin.place["model"], ["scores"]), (str(other), ["mean"])):
        asking.build(twin.session, twin.place, folder, model=model)
        answer = twin.session.request("run", {"bundle": str(folder), "threads": 1}, timeout=60)
        assert [output["name"] for output in answer["outputs"]] == names


def test_a_model_without_kernels_has_a_library(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    [output] = asking.build_and_compare(twin.session, twin.place, reference, models.unchanged(), tmp_path)
    assert output["passed"]
    assert (tmp_path / "built" / "libmodel.so").is_file()


def test_unsupported_operators_are_named_and_counted(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    path, _ = asking.prepare(reference, models.unsupported_operators(), tmp_path)
    refused = asking.refusal(twin.session, "check", {"model": str(path)})
    assert (refused.engine_code, refused.details["operators"]) == ("unsupported_operators", {"Det": 2})


_KNOWN = {
    "relay": "from tvm.relay.frontend import onnx as f; known = {*f._get_convert_map(23), *f._identity_list}",
    "relax": "from tvm.relax.frontend.onnx import onnx_frontend as f; known = {*f._get_convert_map()}",
    "onnx": "from tuner.engines.onnx.rewriting import applying as f; known = {*f._REPLACED}",
}


@pytest.mark.parametrize("name", _KNOWN)
def test_no_engine_imports_what_uploads_warn_of(name: str) -> None:
    known = asking.told_inside(name, f"import json; {_KNOWN[name]}; print(json.dumps(sorted(known)))")
    assert not {each.removeprefix("com.microsoft::") for each in NOT_IMPORTED} & set(known)
    assert known


def test_a_truncated_model_is_refused(twin: Twin, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(models.truncated())
    assert asking.refusal(twin.session, "check", {"model": str(tmp_path / "bad.onnx")}).engine_code == "invalid_model"


def test_inputs_that_do_not_fit_are_refused(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    spec = {"name": "image", "dtype": "float32", "shape": [1, 3, 8, 8]}
    wrong = asking.make_inputs(reference, [spec], tmp_path)
    refused = asking.refusal(twin.session, "run", {"bundle": str(twin.untuned), "inputs": str(wrong), "threads": 1})
    assert refused.engine_code == "invalid_inputs"
    assert "float32(1, 3, 16, 16)" in refused.message


def test_a_damaged_bundle_is_refused(twin: Twin, tmp_path: Path) -> None:
    for path in twin.untuned.iterdir():
        content = path.read_bytes()
        if path.name == "libmodel.so":
            continue
        (tmp_path / path.name).write_bytes(content[: len(content) // 2] if path.name == "mod.json" else content)
    refused = asking.refusal(twin.session, "run", {"bundle": str(tmp_path), "threads": 1})
    assert refused.engine_code == "invalid_bundle"


def test_unknown_options_are_refused(twin: Twin, tmp_path: Path) -> None:
    layout = [{"options": {"layout": "CHWN"}}] if twin.name == "relax" else []
    for wrong in ({"format": "exe"}, {"precision": "int3"}, *layout):
        refused = asking.refusal(twin.session, "compile", {**twin.place, "out_dir": str(tmp_path), **wrong})
        assert refused.engine_code == "invalid_option", wrong


UNKNOWN = {
    "relay": [
        ("llvm -mcpu=znver9", "znver3"),
        ("llvm -mcpu=skylake-avx51", "skylake-avx512"),
        ("llvm -mcpu=skylake-avx512 -mattr=+avx51", "avx512f"),
        ("llvm -mattr=avx2", "+avx2"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortexa72", "cortex-a72"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver3", None),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+noen", "neon"),
        ("llvm -mtriple=aarhc64-linux-gnu", "aarch64"),
        ("llvm -mtriple=aarch64-lnux-gnu", "linux"),
        ("llvm -colour=red", None),
    ],
    "relax": [
        ("llvm -mcpu=znver9", "znver3"),
        ("llvm -colour=red", None),
        ("cuda -colour=red", None),
        ("vulkan", None),
    ],
}


def test_an_unknown_target_gets_near_matches(twin: Twin, tmp_path: Path) -> None:
    for text, near in UNKNOWN[twin.name]:
        refused = asking.refusal(twin.session, "compile", {**twin.place, "target": text, "out_dir": str(tmp_path)})
        assert refused.engine_code == "unknown_target", text
        assert near is None or near in refused.details["near_matches"], text


def test_a_folder_keeps_nothing_of_another_format(twin: Twin, tmp_path: Path) -> None:
    always = {"relay": ["mod.json", "mod.params"], "relax": ["mod.json"]}[twin.name]
    for form, added in (("object", ["mod.tar"]), ("system-lib", ["mod.a"]), ("shared", [])):
        answer = asking.build(twin.session, twin.place, tmp_path, format=form)
        own = {"libmodel.so", "tunesmith.h", "needs-tvm.txt"}
        assert [name for name in answer["files"] if name not in own] == ["mod.so", *added, *always]
        # Only profiles need the file of kernels; it is not part of bundles.
        assert {path.name for path in tmp_path.iterdir()} - {kernels.FILE} == {*answer["files"]}
