"""Libraries that are cross-built for aarch64, run by qemu's user mode, and compared with ONNX Runtime here."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import binaries, models
from tests.support.binaries import ARM, assert_old_glibc_alone, emulator
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin, start
from tuner.engines.runtime.library import linking
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

TARGET = f"llvm -mtriple={ARM} -mcpu=cortex-a72"
DIGEST = "5a" * 32
TO_BYTES = "import sys, numpy as np; open(sys.argv[2], 'wb').write(np.load(sys.argv[1])['image'].tobytes())"
TO_ARRAYS = "import sys, numpy as np; np.savez(sys.argv[2], scores=np.fromfile(sys.argv[1], 'float32')[None])"


@pytest.fixture(scope="module")
def crossed(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries, and two programs that use them."""
    emulator()  # or skip
    folder = tmp_path_factory.mktemp("crossed")
    answer = asking.build(twin.session, twin.place, folder, target=TARGET, format="static", model_digest=DIGEST)
    assert {"libmodel.so", "tunesmith.h", "libmodel.a", "libmodel.h"} <= set(answer["files"])
    built = [f"{ARM}-gcc", "-O1", "-I", folder, Path(__file__).with_name("run.c")]
    linked = [f"-DLINKED=tunesmith_get_api_{DIGEST[:16]}", folder / "libmodel.a", "-static", "-lm", "-lpthread"]
    for name, options in (("loads", []), ("linked", linked)):
        subprocess.run(list(map(str, [*built, *options, "-o", folder / name])), check=True, timeout=60)
    return folder


def test_it_needs_an_old_glibc_alone(crossed: Path) -> None:
    assert_old_glibc_alone(crossed / "libmodel.so")


def test_its_operator_for_onnx_runtime_needs_an_old_glibc_alone(twin: Twin, crossed: Path, tmp_path: Path) -> None:
    asking.build(twin.session, twin.place, tmp_path / "out", target=TARGET, format="onnx", model_digest=DIGEST)
    assert_old_glibc_alone(tmp_path / "out" / "libtunesmith_ort.so")


@pytest.mark.parametrize("name", ["loads", "linked"])
def test_a_library_for_another_machine_computes_the_same(
    name: str, crossed: Path, reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    asking.inside("onnx", TO_BYTES, inputs[0], tmp_path / "inputs")
    emulated = [*emulator(), "-cpu", "cortex-a72", crossed / name]
    command = [*emulated, tmp_path / "inputs", tmp_path / "outputs", crossed / "libmodel.so"]
    binaries.run(command)
    asking.inside("onnx", TO_ARRAYS, tmp_path / "outputs", tmp_path / "actual.npz")
    [output] = asking.compare_with_model(reference, prepared, inputs[0], tmp_path / "actual.npz")
    assert output["passed"], output


@pytest.fixture(scope="module")
def emulating(engine_logs: Path) -> Iterator[EngineSession]:
    """The engine that runs libraries, in its sandbox."""
    with start("library", engine_logs / "emulating.log") as session:
        yield session


def test_the_library_engine_runs_it_under_an_emulator(
    emulating: EngineSession,
    crossed: Path,
    reference: EngineSession,
    prepared: Path,
    inputs: list[Path],
    tmp_path: Path,
) -> None:
    assert emulating.hello["emulators"] == {"aarch64": {"name": "qemu-aarch64", "lacks": None}}
    actual = tmp_path / "actual.npz"
    for threads in (1, 2):
        params = {"bundle": str(crossed), "inputs": str(inputs[0]), "outputs": str(actual), "emulated": "aarch64"}
        answer = emulating.request("run", {**params, "threads": threads}, timeout=60)
        assert answer["outputs"] == [{"name": "scores", "dtype": "float32", "shape": [1, 5]}]
        assert answer["runtime"] == "qemu-aarch64"
        [output] = asking.compare_with_model(reference, prepared, inputs[0], actual)
        assert output["passed"], output
    refused = asking.refusal(emulating, "time", {**params, "threads": 1, "repeat": 1})
    assert (refused.engine_code, "not timed" in refused.message) == ("emulation_failed", True)


def test_a_run_under_an_emulator_decides_the_shapes_of_outputs(
    emulating: EngineSession, relax_twin: Twin, reference: EngineSession, tmp_path: Path
) -> None:
    emulator()  # or skip
    built, specs = asking.prepare(reference, models.suppressed(), tmp_path)
    asking.build(relax_twin.session, relax_twin.place, tmp_path / "out", target=TARGET, model=str(built))
    inputs, actual = asking.make_inputs(reference, specs, tmp_path), tmp_path / "actual.npz"
    params = {"bundle": str(tmp_path / "out"), "inputs": str(inputs), "outputs": str(actual), "threads": 1}
    emulating.request("run", {**params, "emulated": "aarch64"}, timeout=60)
    outputs = asking.compare_with_model(reference, built, inputs, actual)
    assert [output["passed"] for output in outputs] == [True, True], outputs


FAULTY = """
#define TUNESMITH_NO_DLOPEN
#include "tunesmith.h"
static const tunesmith_entry entry = {"main"};
static const tunesmith_description description = {"", "", "", 1, 0, &entry, 1};
static const char *error(void) { return "this CPU lacks sme"; }
static int create(const tunesmith_options *options, tunesmith_session **session) { return CREATED; }
static int shapes(const tunesmith_session *session, const int64_t *const *input_shapes, int32_t input_count,
                  int64_t *const *output_shapes, int32_t output_count) {
  return *(volatile int *)0;
}
static const tunesmith_sizes sizes;
static const tunesmith_api api = {2, &description, create, 0, 0, 0, error, 0, &sizes, shapes, 0};
const tunesmith_api *tunesmith_get_api(uint32_t version, const char **text) { return &api; }
"""


@pytest.mark.parametrize(
    ("created", "code", "reason"),
    [
        ("TUNESMITH_UNSUPPORTED_CPU", "not_emulated", "under qemu-aarch64: this CPU lacks sme"),
        ("TUNESMITH_OUT_OF_RESOURCES", "emulation_failed", "under qemu-aarch64: this CPU lacks sme"),
        ("TUNESMITH_OK", "emulation_failed", "the library crashes under qemu-aarch64: Segmentation fault"),
    ],
)
def test_a_library_that_does_not_run_under_the_emulator(
    emulating: EngineSession, crossed: Path, tmp_path: Path, created: str, code: str, reason: str
) -> None:
    (tmp_path / "faulty.c").write_text(FAULTY)
    command = [f"{ARM}-gcc", "-shared", "-fPIC", f"-DCREATED={created}", "-I", linking.DRIVER, tmp_path / "faulty.c"]
    subprocess.run(list(map(str, [*command, "-o", tmp_path / "libmodel.so"])), check=True, timeout=60)
    params = {"bundle": str(tmp_path), "inputs": None, "outputs": None, "threads": 1, "emulated": "aarch64"}
    refused = asking.refusal(emulating, "run", params)
    assert (refused.engine_code, refused.message) == (code, reason)


KNOWN = "import json; from tuner.engines.runtime import emulating; print(json.dumps(emulating.known()))"


@pytest.mark.parametrize(
    ("programs", "lacks"),
    [
        ([], "qemu-aarch64 is not installed (Debian: apt install qemu-user)"),
        (["qemu-aarch64"], "aarch64-linux-gnu-gcc with its libc is not installed (Debian: apt install gcc-aarch64-lin"),
    ],
)
def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: list[str], lacks: str
) -> None:
    for name in programs:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asking.told_inside("onnx", KNOWN)["aarch64"]["lacks"].startswith(lacks)


def test_the_program_for_the_emulator_compiles_without_warnings(tmp_path: Path) -> None:
    source = linking.DRIVER.parent / "emulated" / "run.c"
    warnings = ("-std=gnu11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
    for compiler in filter(shutil.which, ("gcc", "clang")):
        command = [compiler, *warnings, "-O2", "-I", linking.DRIVER, "-c", source, "-o", tmp_path / "o.o"]
        subprocess.run(list(map(str, command)), check=True)
