"""Libraries of several sizes with kernels of ours, in processes without Python."""

from __future__ import annotations

import math
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.tuner.engines.runtime.library.test_linking import (
    HERE,
    SANITIZERS,
    WARNINGS,
    floats,
    gcc,
    kernels,
    sanitizing_compiler,
)
from tests.support import binaries
from tests.support.binaries import ARM, assert_old_glibc_alone, emulator, symbols
from tuner.engines.runtime.library import linking, sizes, source
from tuner.engines.runtime.library.plan import Call, Convention, Kind, Plan, Workspace
from tuner.engines.runtime.library.sizes import Dimension, Sizes
from tuner.results import wheels

VALUES = ((1, 16), (4, 16), (1, 64), (4, 64), (8, 64))
SECONDS = (1.0, 2.0, 2.5, 5.0, 8.0)
DIMENSIONS = (Dimension(name="batch", splits=True, pads=False), Dimension(name="sequence", splits=False, pads=True))
AXES = {"x": ("batch", "sequence"), "mask": ("sequence",)}
FACTS = source.Facts(model="abc", toolchain="t", target="x", threads=2, features=())
WEIGHTS = struct.pack("<1024f", *range(3, 1027))
CASES = ("grid", "description", "errors", "single", "threads", "fork", "memory")


def plan(convention: Convention, batch: int, sequence: int) -> Plan:
    """Outputs are a result in place, another, and the input itself."""
    shape = (batch, sequence)
    return Plan(
        convention=convention,
        tensors=[
            floats(shape, Kind.INPUT, 0),
            floats((sequence,), Kind.INPUT, 1),
            floats((1024,), Kind.CONSTANT, 0),
            floats(shape, Kind.SCRATCH, 0),
            floats((batch,), Kind.SCRATCH, 1),
        ],
        calls=[
            Call(symbol="shift", name="shift", arguments=(0, 2, 3)),
            Call(symbol="dot", name="dot", arguments=(0, 1, 4), workspace=Workspace(first=(batch << 20) // 4, other=0)),
        ],
        inputs=[0, 1],
        outputs=[3, 4, 0],
        input_names=["x", "mask"],
        output_names=["shifted", "sums", "same"],
        constants=[WEIGHTS],
    )


def linked(
    folder: Path, compiler: str = "gcc", *, archived: bool = False, max_bytes_inside: int = 1_000_000
) -> list[str]:
    """Link a library whose entry points have both conventions in turn; return the names of its files."""
    entries = []
    for number, size in enumerate(VALUES):
        convention = list(Convention)[number % 2]
        place = folder / f"part{number}"
        place.mkdir()
        made = plan(convention, *size)
        name = f"batch={size[0]}, sequence={size[1]}"
        entries.append(linking.Entry(name=name, plan=made, objects=[kernels(place, convention, compiler)]))
    plans = [each.plan for each in entries]
    described = sizes.describe(plans, DIMENSIONS, VALUES, SECONDS, AXES, {"x": 5, "mask": 0})
    assert described.dimensions == DIMENSIONS
    packed = source.weights(constant for each in plans for constant in each.constants)
    assert packed.size == len(WEIGHTS)
    prefix = f"{ARM}-" if compiler.startswith(ARM) else ""
    binutils = linking.Binutils(ar=f"{prefix}ar", objcopy=f"{prefix}objcopy")
    return linking.link_all(
        entries, packed, described, FACTS, folder, compiler, binutils, max_bytes_inside, is_archived=archived
    )


def program(folder: Path, *options: str, compiler: str = "gcc") -> Path:
    sources = ("-I", folder, HERE / "sized.c", "-o", folder / "sized")
    gcc(*WARNINGS, "-O1", "-pthread", *sources, *options, compiler=compiler)
    return folder / "sized"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sized")
    assert linked(folder) == ["libmodel.so", "tunesmith.h"]
    program(folder)
    return folder / "libmodel.so"


@pytest.mark.parametrize("case", CASES)
def test_a_program_without_python_uses_several_sizes(library: Path, case: str) -> None:
    binaries.run([library.with_name("sized"), library, case])


def test_the_size_of_an_entry_point_costs_no_microsecond_more(library: Path) -> None:
    overheads = [int(binaries.run([library.with_name("sized"), library, "overhead"])) for _ in range(3)]
    assert min(overheads) < 1000, overheads


def test_a_library_of_several_sizes_exports_its_interface_alone(library: Path) -> None:
    assert [line.split()[-1] for line in symbols(library, "--defined-only")] == ["tunesmith_get_api"]
    assert not [line for line in symbols(library, "--undefined-only") if "TVM" in line]
    assert_old_glibc_alone(library)


def test_equal_parts_make_equal_libraries(library: Path, tmp_path: Path) -> None:
    linked(tmp_path)
    assert (tmp_path / "libmodel.so").read_bytes() == library.read_bytes()


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sizes_between_are_clean_under_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    options = SANITIZERS[sanitizer]
    linked(tmp_path, sanitizing_compiler(tmp_path, sanitizer))
    checks = program(tmp_path, *options, "-g")
    for case in ("grid", "errors", "single", "threads"):
        binaries.run([checks, tmp_path / "libmodel.so", case], timeout=200)


@pytest.mark.parametrize("max_bytes_inside", [1_000_000, 1000])
def test_a_static_program_has_several_sizes(tmp_path: Path, max_bytes_inside: int) -> None:
    written = linked(tmp_path, archived=True, max_bytes_inside=max_bytes_inside)
    assert written[-2:] == ["libmodel.a", "libmodel.h"]
    if max_bytes_inside < len(WEIGHTS):
        assert (tmp_path / "libmodel.weights").stat().st_size == len(WEIGHTS)
        shutil.copyfile(tmp_path / "libmodel.weights", tmp_path / "libmodel-abc.weights")
        program(tmp_path)
        binaries.run([tmp_path / "sized", tmp_path / "libmodel.so", "grid"])
    named = ("-DLINKED=tunesmith_get_api_abc", "-include", str(tmp_path / "libmodel.h"))
    static = program(tmp_path, "-static", *named, str(tmp_path / "libmodel.a"), "-lm", "-lpthread")
    for case in ("grid", "errors", "threads"):
        binaries.run([static, "", case])


def test_several_sizes_for_another_machine_run_there(tmp_path: Path) -> None:
    emulated = emulator()
    linked(tmp_path, f"{ARM}-gcc", archived=True)
    assert_old_glibc_alone(tmp_path / "libmodel.so")
    checks = program(tmp_path, compiler=f"{ARM}-gcc")
    for case in ("grid", "errors", "single"):
        binaries.run([*emulated, "-cpu", "max", checks, tmp_path / "libmodel.so", case], timeout=200)


IN_CXX = """
#include "tunesmith.hpp"
int main(int, char **arguments) {
  tunesmith::model model(arguments[1]);
  tunesmith::session session(model, {TUNESMITH_ALL_ENTRIES, 0, 0, 0});
  const std::vector<tunesmith::shape> shapes = {{6, 20}, {20}};
  const std::vector<tunesmith::shape> made = session.shapes(shapes);
  if (made[0] != tunesmith::shape{6, 20} || made[1] != tunesmith::shape{6}) return 1;
  tunesmith::buffer<float> x(120, 1), mask(20, 1), shifted(120), sums(6);
  session.run({x, mask}, shapes, {shifted, sums, nullptr});
  if (sums[5] != 20 || shifted[119] != 4) return 2;
  const std::pair<std::vector<tunesmith::shape>, int> refused[] = {
      {{{6, 200}, {200}}, TUNESMITH_NO_SUCH_SIZE}, {{{6}, {200}}, TUNESMITH_INVALID_ARGUMENT}};
  for (const auto &[wrong, status] : refused) {
    try {
      session.shapes(wrong);
      return 3;
    } catch (const tunesmith::error &error) {
      if (error.status != status) return 4;
    }
  }
}
"""


def test_the_cxx_header_has_shapes_too(library: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(IN_CXX)
    headers = Path(wheels.__file__).parent / "interface"
    options = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", headers, "-I", library.parent)
    gcc(*options, tmp_path / "main.cpp", "-o", tmp_path / "main", "-ldl", compiler="g++")
    binaries.run([tmp_path / "main", library])


@pytest.fixture(scope="module")
def cover(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cover")
    sources = (HERE / "cover.c", linking.DRIVER / "sizes.c")
    gcc(*WARNINGS, *SANITIZERS["address"], "-O1", "-I", linking.DRIVER, *sources, "-o", folder / "cover")
    return folder / "cover"


def least(batches: list[int], seconds: list[float], rows: int) -> float:
    """The least total of seconds, by trying every number of runs of every entry point."""
    if rows <= 0:
        return 0.0
    if not batches:
        return math.inf
    runs = -(-rows // batches[0])
    return min(
        each * seconds[0] + least(batches[1:], seconds[1:], rows - each * batches[0]) for each in range(runs + 1)
    )


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.integers(1, 16), st.integers(1, 1000), min_size=1, max_size=4),
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
)
def test_rows_are_covered_by_the_runs_that_take_least(cover: Path, entries: dict[int, int], rows: list[int]) -> None:
    batches, seconds = list(entries), [float(each) for each in entries.values()]
    entry = " ".join(f"{batch} {entries[batch]}" for batch in batches)
    asked = "".join(f"{count} {len(batches)} {entry}\n" for count in rows)
    done = subprocess.run([cover], input=asked, capture_output=True, text=True, timeout=20, check=True)
    for count, line in zip(rows, done.stdout.splitlines(), strict=True):
        if count in entries:
            assert line == f"exact {batches.index(count)}"
            continue
        runs = [tuple(map(int, run.split(":"))) for run in line.split()]
        assert sum(served for _, served in runs) == count
        # The last run alone may have spare rows.
        assert all(served == batches[place] for place, served in runs[:-1])
        assert 0 < runs[-1][1] <= batches[runs[-1][0]]
        # Rows beyond the largest batch are whole runs of the batch with the least seconds per row.
        largest = max(batches)
        quickest = min(range(len(batches)), key=lambda place: (seconds[place] / batches[place], place))
        first = 0
        while count > largest:
            assert batches[runs[first][0]] * seconds[quickest] == batches[quickest] * seconds[runs[first][0]]
            count -= runs[first][1]
            first += 1
        assert sum(seconds[place] for place, _ in runs[first:]) == least(batches, seconds, count)


def described(values: tuple[tuple[int, int], ...], outputs: dict[str, list[tuple[int, ...]]], **more: object) -> Sizes:
    """Sizes of plans with an input [batch, sequence] and outputs of these shapes, one for each part."""
    plans = []
    for number, size in enumerate(values):
        shapes = [each[number] for each in outputs.values()]
        tensors = [floats(size, Kind.INPUT), *(floats(shape, Kind.SCRATCH, at) for at, shape in enumerate(shapes))]
        plans.append(
            Plan(
                convention=Convention.PACKED, tensors=tensors, calls=[], inputs=[0], input_names=["x"],
                outputs=list(range(1, len(tensors))), output_names=list(outputs), constants=[],
            )
        )  # fmt: skip
    given = {"dimensions": DIMENSIONS, "axes": {"x": ("batch", "sequence")}, "padding": {"x": 0.0}, **more}
    seconds = given.pop("seconds", [1.0] * len(values))
    return sizes.describe(plans, given["dimensions"], values, seconds, given["axes"], given["padding"])  # type: ignore[arg-type]


GRID = ((1, 16), (1, 32), (4, 16), (4, 32))


@pytest.mark.parametrize(
    ("outputs", "exact"),
    [
        ({"y": [(b, s) for b, s in GRID]}, []),
        ({"y": [(b, 3) for b, _ in GRID]}, []),
        ({"y": [(b, s // 2) for b, s in GRID]}, ["sequence"]),
        ({"y": [(b * s,) for b, s in GRID]}, ["batch", "sequence"]),
        ({"y": [(s, b) for b, s in GRID]}, ["batch"]),
        ({"y": [(3,) for _ in GRID]}, ["batch"]),
        ({"y": [(4 * b, s) for b, s in GRID]}, ["batch"]),
        ({"y": [(b, s) for b, s in GRID], "z": [(b, b) for b, _ in GRID]}, ["batch"]),
        ({"y": [(b, s, 2 * s) for b, s in GRID]}, ["sequence"]),
    ],
)
def test_dimensions_that_outputs_do_not_follow_are_served_exactly(
    outputs: dict[str, list[tuple[int, ...]]], exact: list[str]
) -> None:
    found = described(GRID, outputs)
    assert [each.name for each in found.dimensions if each.is_exact] == exact


def test_a_dimension_of_one_size_is_served_exactly() -> None:
    values = ((2, 16), (2, 32))
    found = described(values, {"y": [(b, s) for b, s in values]})
    assert [each.is_exact for each in found.dimensions] == [True, False]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"padding": {}}, "input x has no value to pad it with"),
        ({"padding": {"x": 1e39}}, r"input x is float32 and cannot be padded with 1e\+39"),
        ({"seconds": [1, 1, 0, 1]}, "each part needs the seconds of a run, more than 0"),
        ({"seconds": [1, 1, math.nan, 1]}, "each part needs the seconds"),
        ({"axes": {"x": ("batch",)}}, r"input x has 2 axes; their dimensions are given as \['batch'\]"),
        ({"axes": {"x": ("batch", "width")}}, r"given as \['batch', 'width'\]"),
        ({"axes": {"x": ("sequence", "batch")}}, r"input x of a part is \[1, 16\]; its sizes say \[16, 1\]"),
        ({"axes": {"x": ("batch", None)}}, r"input x of a part is \[1, 32\]; its sizes say \[1, 16\]"),
        ({"dimensions": (DIMENSIONS[0], DIMENSIONS[0])}, "1 to 8 dimensions with different names"),
        (
            {"dimensions": (DIMENSIONS[0], Dimension(name="sequence", splits=True, pads=False))},
            "only one dimension can be split",
        ),
    ],
)
def test_sizes_that_do_not_fit_together_are_refused(changes: dict[str, object], text: str) -> None:
    with pytest.raises(sizes.NotJoinable, match=text):
        described(GRID, {"y": list(GRID)}, **changes)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("float32", 0.5, struct.pack("<f", 0.5)),
        ("float64", -1, struct.pack("<d", -1)),
        ("float16", 1.5, struct.pack("<e", 1.5)),
        ("bfloat16", 1.5, b"\xc0\x3f"),
        ("int64", -2, struct.pack("<q", -2)),
        ("uint8", 255, b"\xff"),
        ("bool", 1, b"\x01"),
    ],
)
def test_padding_is_an_element_of_the_input(dtype: str, value: float, expected: bytes) -> None:
    assert sizes.element(dtype, value) == expected
