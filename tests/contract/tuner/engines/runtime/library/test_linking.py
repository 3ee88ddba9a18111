"""The C driver with kernels of ours, in processes without Python: both conventions, threads, forks, sanitizers."""

from __future__ import annotations

import array
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tuner.engines.runtime.library import linking, source
from tuner.engines.runtime.library.plan import Call, Convention, Kind, NotStandalone, Plan, Tensor

HERE = Path(__file__).parent
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
CASES = ("runs", "description", "profile", "errors", "threads", "fork")
SANITIZERS = {
    "none": (),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread",),
}
SHAPE = (4, 256)


def floats(shape: tuple[int, ...], kind: Kind, index: int = 0) -> Tensor:
    return Tensor(dtype="float32", shape=shape, kind=kind, index=index)


def plan(convention: Convention) -> Plan:
    """Outputs are a result in place, another, the input itself, and the first one reshaped."""
    return Plan(
        convention=convention,
        tensors=[
            floats(SHAPE, Kind.INPUT),
            floats(SHAPE, Kind.CONSTANT),
            floats(SHAPE, Kind.SCRATCH, 0),
            floats(SHAPE, Kind.SCRATCH, 1),
            floats((1024,), Kind.SCRATCH, 1),
            floats((), Kind.SCRATCH, 2),
        ],
        calls=[
            Call(symbol="check", name="check", arguments=(0, 2)),
            Call(symbol="scale", name="scale", arguments=(2, 1, 3)),
            Call(symbol="total", name="total", arguments=(4, 5)),
        ],
        inputs=[0],
        outputs=[3, 5, 0, 4],
        input_names=["x"],
        output_names=["scaled", "sum", "same", "flat"],
        constants=[array.array("f", [place % 4 for place in range(1024)]).tobytes()],
    )


def gcc(*arguments: str | Path) -> None:
    done = subprocess.run(["gcc", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def linked(folder: Path, convention: Convention, features: tuple[str, ...] = ()) -> Path:
    ffi = ("-DCONVENTION_FFI",) if convention is Convention.FFI else ()
    gcc(*WARNINGS, *ffi, "-O1", "-fPIC", "-c", HERE / "kernels.c", "-o", folder / "kernels.o")
    facts = source.Facts(model="abc", toolchain="t", target='a "target"\\', threads=2, features=features)
    written = linking.link(plan(convention), [folder / "kernels.o"], facts, folder, "gcc")
    assert written == ["libmodel.so", "tunesmith.h"]
    return folder / "libmodel.so"


def program(folder: Path, *options: str) -> Path:
    gcc(*WARNINGS, *options, "-O1", "-pthread", "-I", folder, HERE / "program.c", "-o", folder / "program")
    return folder / "program"


@pytest.fixture(scope="module", params=list(Convention))
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked(tmp_path_factory.mktemp("library"), request.param)


@pytest.fixture(scope="module")
def checks(library: Path) -> Path:
    return program(library.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root folder")
def test_a_library_runs_where_there_is_nothing_but_libc(checks: Path, library: Path, tmp_path: Path) -> None:
    listed = subprocess.run(["ldd", checks, library], capture_output=True, text=True, check=True, timeout=20).stdout
    needed = set(re.findall(r"(/\S*/(?:libc|libm|libpthread|ld-linux[^/]*)\.so\S*)", listed))
    assert len(needed) == len(set(re.findall(r"(/\S+\.so\S*) \(0x", listed)))
    for path in (*needed, checks, library):
        copy = tmp_path / str(path).lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    command = ["chroot", tmp_path, checks, library, "runs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", sorted(linking.DRIVER.glob("*.c")), ids=lambda path: path.name)
def test_the_driver_compiles_without_warnings(path: Path, tmp_path: Path) -> None:
    for level in ("-O0", "-O2"):
        gcc(*WARNINGS, level, "-fPIC", "-c", path, "-o", tmp_path / "driver.o")


@pytest.mark.parametrize("case", CASES)
def test_a_program_without_python_uses_a_library(checks: Path, library: Path, case: str) -> None:
    done = subprocess.run([checks, library, case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_header_is_cxx_too(library: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(
        '#include "tunesmith.h"\nconst tunesmith_api *model() { return tunesmith_get_api(1, nullptr); }\n'
    )
    options = ("-std=c++11", "-Wall", "-Wextra", "-Werror", "-I", library.parent)
    gcc("-x", "c++", *options, tmp_path / "main.cpp", "-c", "-o", tmp_path / "main.o")


def test_a_library_exports_its_interface_alone_and_needs_an_old_glibc_alone(library: Path) -> None:
    def symbols(kind: str) -> list[str]:
        command = ["nm", "-D", kind, str(library)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()

    assert [line.split()[-1] for line in symbols("--defined-only")] == ["tunesmith_get_api"]
    needed = symbols("--undefined-only")
    assert not [line for line in needed if "TVM" in line]
    versions = [tuple(map(int, found.split("."))) for line in needed for found in re.findall(r"@GLIBC_([\d.]+)", line)]
    assert (2, 2, 5) in versions
    # manylinux2014
    assert max(versions) <= (2, 17)


def test_a_missing_instruction_set_is_named(tmp_path: Path) -> None:
    # Abandoned by AMD in 2014; Intel never had it.
    library = linked(tmp_path, Convention.PACKED, ("sse2", "fast-gather", "xop"))
    done = subprocess.run(
        [program(tmp_path), library, "create"], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout == '2 this CPU lacks xop, which the model was compiled for (a "target"\\)\n'


def test_another_version_of_the_interface_is_refused(library: Path, tmp_path: Path) -> None:
    header = (library.parent / "tunesmith.h").read_text()
    (tmp_path / "tunesmith.h").write_text(header.replace("TUNESMITH_API_VERSION 1", "TUNESMITH_API_VERSION 2"))
    done = subprocess.run(
        [program(tmp_path), library, "create"], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout == "-1 the library has version 1 of Tunesmith's C interface; the program needs 2\n"


def test_functions_of_the_runtime_that_the_driver_lacks_are_named(tmp_path: Path) -> None:
    (tmp_path / "kernel.c").write_text(
        'void *__TVMFuncCall __attribute__((weak));\nconst char *name(void) { return "tvm.contrib.sort.topk"; }\n'
    )
    gcc("-c", tmp_path / "kernel.c", "-o", tmp_path / "kernel.o")
    facts = source.Facts(model="", toolchain="", target="", threads=1, features=())
    with pytest.raises(NotStandalone, match=r"functions of TVM's runtime: tvm\.contrib\.sort\.topk"):
        linking.link(plan(Convention.PACKED), [tmp_path / "kernel.o"], facts, tmp_path, "gcc")
    assert not (tmp_path / "libmodel.so").exists()


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_the_driver_is_clean_under_sanitizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sanitizer: str) -> None:
    options = SANITIZERS[sanitizer]
    compiler = tmp_path / "sanitizing-gcc"
    # A library that is loaded later leaves undefined what the program brings.
    compiler.write_text(f'#!/bin/sh\nexec gcc {" ".join(options)} "$@" -Wl,-z,undefs -g\n')
    compiler.chmod(0o755)
    gcc("-O1", "-g", *options, "-fPIC", "-c", HERE / "kernels.c", "-o", tmp_path / "kernels.o")
    facts = source.Facts(model="abc", toolchain="t", target="x", threads=2, features=())
    linking.link(plan(Convention.PACKED), [tmp_path / "kernels.o"], facts, tmp_path, str(compiler))
    # Not forks: a child of theirs may wait for ever for a lock of their allocator that another thread held.
    cases = ("runs", "errors", "threads")
    checks = program(tmp_path, *options, "-g")
    for case in cases:
        done = subprocess.run(
            [checks, tmp_path / "libmodel.so", case], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), case
