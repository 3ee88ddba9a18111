"""Bundles of the format ``onnx`` in real releases of ONNX Runtime."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import models
from tests.support.binaries import assert_old_glibc_alone
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import NOTHING_TUNED, Twin, home, manifest
from tuner.engines.runtime.library import linking, operators
from tuner.host import catalogue, environments
from tuner.host.catalogue import EngineSpec
from tuner.host.session import EngineSession
from tuner.results import bundle
from tunesmith import verifying

pytestmark = pytest.mark.engine

RUN = """
import sys, threading
import numpy as np
import onnxruntime
folder, inputs, outputs = sys.argv[1:]
def session():
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(f"{folder}/libtunesmith_ort.so")
    return onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
one, other = session(), session()
feeds = dict(np.load(inputs))
names = [output.name for output in one.get_outputs()]
found = one.run(names, feeds)
np.savez(outputs, **dict(zip(names, found)))
def again():
    for session in (one, other) * 50:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(session.run(names, feeds), found))
threads = [threading.Thread(target=again) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(onnxruntime.__version__, len(threads), one.get_inputs()[0].shape)
"""
LOAD = """
import sys
import onnxruntime
try:
    onnxruntime.SessionOptions().register_custom_ops_library(sys.argv[1])
except Exception as error:
    print(error)
"""
OTHER_RELEASES = {"1.17": "1.17.3", "1.22": "1.22.1"}


@pytest.fixture(scope="module")
def built(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operator")
    answer = asking.build(twin.session, twin.place, folder, model_digest="cd" * 32, format="onnx")
    assert {"libmodel.so", "model.onnx", "libtunesmith_ort.so"} <= set(answer["files"])
    return folder


@pytest.mark.parametrize("release", ["engine", *OTHER_RELEASES])
def test_releases_of_onnx_runtime_compute_what_the_library_does(
    release: str, twin: Twin, built: Path, inputs: list[Path], tmp_path: Path
) -> None:
    spec = catalogue.get("onnx")
    if release in OTHER_RELEASES:
        requirements = catalogue.ROOT / "requirements" / f"onnxruntime-{release}.txt"
        spec = EngineSpec(name=f"onnxruntime-{release}", module="onnxruntime", requirements=requirements)
        environments.install(spec, home())
    command = [environments.interpreter(spec, home()), "-c", RUN, built, inputs[0], tmp_path / "actual.npz"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith(OTHER_RELEASES.get(release, "1."))
    assert done.stdout.endswith(" 4 [1, 3, 16, 16]\n")
    asking.run(twin.session, built, inputs[0], tmp_path / "expected.npz")
    asking.assert_same_bytes(tmp_path / "actual.npz", tmp_path / "expected.npz")


def test_the_libraries_need_an_old_glibc_alone(built: Path) -> None:
    assert_old_glibc_alone(built / "libmodel.so")
    assert_old_glibc_alone(built / "libtunesmith_ort.so")


def test_a_bundle_with_an_operator_passes_verification(twin: Twin, built: Path, tmp_path: Path) -> None:
    facts = manifest(twin, model_digest="cd" * 32, format="onnx")
    bundle.write(tmp_path / "b.tar", compiled=built, manifest=facts, report=NOTHING_TUNED)
    assert verifying.check(tmp_path / "b.tar").libraries.keys() >= {"libmodel.so", "libtunesmith_ort.so"}


def test_an_operator_without_its_library_says_so(built: Path, tmp_path: Path) -> None:
    alone = shutil.copy(built / "libtunesmith_ort.so", tmp_path)
    assert f"cannot load {tmp_path}/libmodel.so: " in asking.inside("onnx", LOAD, alone)


def test_what_needs_tvm_becomes_no_operator(relax_twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    prepared, _ = asking.prepare(reference, models.different_values(), tmp_path)
    params = {**relax_twin.place, "model": str(prepared), "records": None, "out_dir": str(tmp_path / "out")}
    refused = asking.refusal(relax_twin.session, "compile", {**params, "format": "onnx"})
    assert refused.engine_code == "compile_failed"
    assert refused.message.endswith("the model needs TVM for tensors whose sizes only a run decides: Unique (1×)")


def test_onnx_runtime_learns_the_shapes_that_a_run_decides(
    relax_twin: Twin, reference: EngineSession, tmp_path: Path
) -> None:
    for least in (0.2, 2.0):
        folder = tmp_path / str(least)
        folder.mkdir()
        prepared, specs = asking.prepare(reference, models.suppressed(least=least), folder)
        params = {"model": str(prepared), "format": "onnx", "model_digest": "ef" * 32}
        asking.build(relax_twin.session, relax_twin.place, folder / "out", **params)
        inputs = asking.make_inputs(reference, specs, folder)
        told = asking.inside("onnx", RUN, folder / "out", inputs, folder / "actual.npz")
        assert told.endswith(" 4 [1, 20, 4]\n"), told
        asking.run(relax_twin.session, folder / "out", inputs, folder / "expected.npz")
        asking.assert_same_bytes(folder / "actual.npz", folder / "expected.npz")


def test_the_operator_compiles_without_warnings(tmp_path: Path) -> None:
    source = operators.SOURCE
    warnings = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
    for compiler in filter(shutil.which, ("gcc", "clang")):
        command = [compiler, *warnings, "-O2", "-fPIC", "-I", linking.DRIVER, "-c", source, "-o", tmp_path / "o.o"]
        subprocess.run(list(map(str, command)), check=True)
