"""Libraries of models of which a run decides the shapes of outputs, in processes without Python."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.contract.tuner.engines.runtime.library.test_linking import (
    HERE,
    WARNINGS,
    floats,
    gcc,
    kernels,
    sanitizing_compiler,
)
from tests.support import binaries
from tests.support.binaries import ARM, emulator
from tuner.engines.runtime.library import linking, source
from tuner.engines.runtime.library.plan import Call, Convention, Kind, Plan, Tensor
from tuner.results import wheels

CASES = ("runs", "description", "versions", "errors", "profile", "threads")
RULES = struct.pack("<4q", 0, 0, 0, 8)


def plan() -> Plan:
    """Outputs are a result of a size that a run decides, the same in another shape, and the input itself."""
    tensors = [
        floats((8,), Kind.INPUT),
        Tensor(dtype="int64", shape=(1,), kind=Kind.SCRATCH, index=0),
        Tensor(dtype="int64", shape=(1, 4), kind=Kind.CONSTANT, index=0),
        Tensor(dtype="int64", shape=(2,), kind=Kind.SIZES, index=0),
        Tensor(dtype="int64", shape=(), kind=Kind.SIZE, index=0),
        Tensor(dtype="float32", shape=(8, 2), kind=Kind.SCRATCH, index=1, open=(0, None)),
        Tensor(dtype="float32", shape=(16,), kind=Kind.SCRATCH, index=1, open=(1,)),
    ]
    steps = (
        ("count_positive", (0, 1)), ("tunesmith_read_sizes", (1, 2, 3)), ("twice", (3,)), ("pick_positive", (0, 4, 5))
    )  # fmt: skip
    names = {"tunesmith_read_sizes": "read sizes"}
    return Plan(
        convention=Convention.FFI,
        tensors=tensors,
        calls=[Call(symbol=name, name=names.get(name, name), arguments=arguments) for name, arguments in steps],
        inputs=[0],
        outputs=[5, 6, 0],
        input_names=["x"],
        output_names=["pairs", "flat", "same"],
        constants=[RULES],
        sizes=2,
    )


def linked(folder: Path, compiler: str = "gcc", *options: str) -> Path:
    facts = source.Facts(model="abc", toolchain="t", target="x", threads=2, features=())
    linking.link(plan(), [kernels(folder, Convention.FFI, compiler)], facts, folder, compiler)
    sources = ("-I", folder, HERE / "open.c", "-o", folder / "open", "-ldl")
    gcc(*WARNINGS, "-O1", "-pthread", *options, *sources, compiler=compiler)
    return folder / "libmodel.so"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked(tmp_path_factory.mktemp("open"))


@pytest.mark.parametrize("case", CASES)
def test_a_program_without_python_learns_the_shapes_of_outputs(library: Path, case: str) -> None:
    binaries.run([library.with_name("open"), library, case])


def test_a_library_for_another_machine_decides_sizes_there(tmp_path: Path) -> None:
    library = linked(tmp_path, f"{ARM}-gcc")
    for case in ("runs", "errors"):
        binaries.run([*emulator(), "-cpu", "max", tmp_path / "open", library, case])


IN_CXX = """
#include "tunesmith.hpp"
int main(int, char **arguments) {
  tunesmith::model model(arguments[1]);
  tunesmith::session session(model);
  const tunesmith::buffer<float> x = {1, 0, 2, 0, 0, 3, 0, 0};
  tunesmith::buffer<float> pairs(16);
  const std::vector<tunesmith::shape> made = session.run_open({x}, {pairs, nullptr, nullptr});
  if (made[0] != tunesmith::shape{3, 2} || made[1] != tunesmith::shape{6} || pairs[4] != 3) return 1;
  try {
    session.run({x}, {pairs, nullptr, nullptr});
    return 2;
  } catch (const tunesmith::error &error) {
    return error.status != TUNESMITH_INVALID_ARGUMENT;
  }
}
"""


def test_the_cxx_header_returns_the_shapes(library: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(IN_CXX)
    headers = Path(wheels.__file__).parent / "interface"
    options = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", headers, "-I", library.parent)
    gcc(*options, tmp_path / "main.cpp", "-o", tmp_path / "main", "-ldl", compiler="g++")
    binaries.run([tmp_path / "main", library])


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sizes_that_a_run_decides_are_clean_under_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    library = linked(tmp_path, sanitizing_compiler(tmp_path, sanitizer))
    for case in ("runs", "errors", "threads"):
        binaries.run([tmp_path / "open", library, case], timeout=120)
