"""The C driver with kernels of ours, in processes without Python: both conventions, threads, forks, sanitizers."""

from __future__ import annotations

import array
import dataclasses
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support import binaries
from tests.support.binaries import ARM, assert_old_glibc_alone, copy_with_libc, emulator, symbols
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import interpreter, start
from tuner.engines.runtime.library import linking, memory, source
from tuner.engines.runtime.library.plan import Call, Convention, Kind, NotStandalone, Plan, Tensor, Workspace
from tuner.host import catalogue
from tunesmith import verifying

HERE = Path(__file__).parent
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
CASES = ("runs", "description", "profile", "errors", "threads", "fork", "memory", "placement", "spinning", "pinning")
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
            Call(symbol="total", name="total", arguments=(4, 5), workspace=Workspace(first=2 << 20, other=1 << 20)),
        ],
        inputs=[0],
        outputs=[3, 5, 0, 4],
        input_names=["x"],
        output_names=["scaled", "sum", "same", "flat"],
        constants=[array.array("f", [place % 4 for place in range(1024)]).tobytes()],
    )


def gcc(*arguments: str | Path, compiler: str = "gcc") -> None:
    done = subprocess.run([compiler, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def kernels(folder: Path, convention: Convention, compiler: str = "gcc") -> Path:
    ffi = ("-DCONVENTION_FFI",) if convention is Convention.FFI else ()
    gcc(*WARNINGS, *ffi, "-O1", "-fPIC", "-c", HERE / "kernels.c", "-o", folder / "kernels.o", compiler=compiler)
    return folder / "kernels.o"


def linked(folder: Path, convention: Convention, features: tuple[str, ...] = (), compiler: str = "gcc") -> Path:
    compiled = kernels(folder, convention, compiler)
    facts = source.Facts(model="abc", toolchain="t", target='a "target"\\', threads=2, features=features)
    written = linking.link(plan(convention), [compiled], facts, folder, compiler)
    assert written == ["libmodel.so", "tunesmith.h"]
    return folder / "libmodel.so"


def program(folder: Path, *options: str, compiler: str = "gcc") -> Path:
    linked_with = ("-O1", "-pthread", "-rdynamic", "-I", folder, HERE / "program.c", "-o", folder / "program")
    gcc(*WARNINGS, *options, *linked_with, compiler=compiler)
    return folder / "program"


def sanitizing_compiler(folder: Path, sanitizer: str) -> str:
    compiler = folder / "sanitizing-gcc"
    # A library that is loaded later leaves undefined what the program brings.
    compiler.write_text(
        '#!/bin/sh\ncase " $* " in *" -r "*) exec gcc "$@" ;; esac\n'
        f'exec gcc {" ".join(SANITIZERS[sanitizer])} "$@" -Wl,-z,undefs -g\n'
    )
    compiler.chmod(0o755)
    return str(compiler)


@pytest.fixture(scope="module", params=list(Convention))
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked(tmp_path_factory.mktemp("library"), request.param)


@pytest.fixture(scope="module")
def checks(library: Path) -> Path:
    return program(library.parent)


GUARDED = """
import sys
from pathlib import Path
from tuner.engines.runtime.running import LibraryNetwork
network = LibraryNetwork(Path(sys.argv[1]), 1)
network.feed_file(None)
for number in range(2):
    network.run()
    print(number, flush=True)
"""


@pytest.mark.parametrize(("elements", "runs"), [(1024, ["0", "1"]), (512, ["0"])], ids=["all", "half"])
def test_a_kernel_that_reads_beyond_an_input_crashes_in_verification(
    tmp_path: Path, elements: int, runs: list[str]
) -> None:
    """The kernel reads 1024 elements. In the second run, the input ends at a guard page."""
    made = Plan(
        convention=Convention.FFI,
        tensors=[floats((elements,), Kind.INPUT), floats((1024,), Kind.CONSTANT), floats((1024,), Kind.SCRATCH, 0)],
        calls=[Call(symbol="scale", name="scale", arguments=(1, 0, 2))],
        inputs=[0],
        outputs=[2],
        input_names=["x"],
        output_names=["scaled"],
        constants=[array.array("f", range(1024)).tobytes()],
    )
    facts = source.Facts(model="abc", toolchain="t", target="t", threads=1, features=())
    linking.link(made, [kernels(tmp_path, Convention.FFI)], facts, tmp_path, "gcc")
    command = [interpreter("onnx"), "-c", GUARDED, tmp_path]
    done = subprocess.run(command, cwd=catalogue.ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == runs, done.stderr
    assert done.returncode == (0 if len(runs) == 2 else -signal.SIGSEGV)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root folder")
def test_a_library_runs_where_there_is_nothing_but_libc(checks: Path, library: Path, tmp_path: Path) -> None:
    copy_with_libc(tmp_path, checks, library)
    binaries.run(["chroot", tmp_path, checks, library, "runs"])


@pytest.mark.parametrize("path", sorted(linking.DRIVER.glob("*.c")), ids=lambda path: path.name)
def test_the_driver_compiles_without_warnings(path: Path, tmp_path: Path) -> None:
    outside = ("-DWEIGHTS_OUTSIDE",) if path.name == "weights.c" else ()
    for level in (("-O0",), ("-O2",), ("-O2", "-DTUNESMITH_STATIC", *outside)):
        gcc(*WARNINGS, *level, "-fPIC", "-c", path, "-o", tmp_path / "driver.o")


@pytest.mark.parametrize("convention", list(Convention))
def test_the_tables_of_a_plan_compile_without_warnings(convention: Convention, tmp_path: Path) -> None:
    made = plan(convention)
    packed = source.weights(made.constants)
    facts = source.Facts(model="abc", toolchain="t", target="x", threads=2, features=("avx2",))
    laid_out = memory.lay_out(made, 2)
    entry = source.Entry(name="main", plan=made, memory=laid_out, offsets=packed.offsets)
    (tmp_path / "entry_0.c").write_text(source.entry(0, entry))
    (tmp_path / "model.c").write_text(source.model([entry], packed.size, facts, None))
    for name in ("model.c", "entry_0.c"):
        gcc(*WARNINGS, "-fsyntax-only", "-I", linking.DRIVER, tmp_path / name)


def test_the_driver_is_clean_under_valgrind(checks: Path, library: Path) -> None:
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is missing: apt install valgrind")
    command = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", checks, library, "errors"]
    binaries.run(command)


@pytest.mark.parametrize("compiler", ["gcc", f"{ARM}-gcc"])
def test_functions_of_libm_return_what_the_newest_versions_do(tmp_path: Path, compiler: str) -> None:
    # A library that is linked with old versions, in a program with the others.
    emulated = () if compiler == "gcc" else emulator()
    wrapped = (f"-Wl,--wrap={name}" for name in linking._WRAPPED)
    called = (*WARNINGS, "-O1", "-fno-builtin", "-DCALLER", HERE / "functions.c", linking.DRIVER / "math.c")
    gcc(
        *called,
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        *wrapped,
        "-o",
        tmp_path / "libcaller.so",
        "-lm",
        compiler=compiler,
    )
    assert_old_glibc_alone(tmp_path / "libcaller.so")
    options = (*WARNINGS, "-O1", "-fno-builtin", HERE / "functions.c", tmp_path / "libcaller.so")
    gcc(*options, "-o", tmp_path / "functions", "-lm", compiler=compiler)
    assert binaries.run([*emulated, tmp_path / "functions"]) == ""


@pytest.mark.parametrize("case", CASES)
def test_a_program_without_python_uses_a_library(checks: Path, library: Path, case: str) -> None:
    binaries.run([checks, library, case])


def test_threads_are_no_more_than_the_cpus_of_the_affinity_mask(checks: Path, library: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))

    def threads(*cpus: int) -> str:
        command = ["taskset", "-c", ",".join(map(str, cpus)), checks, library, "threads-by-default"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout

    assert threads(allowed[-1]) == "1"
    # As many as it was tuned for.
    assert threads(*allowed) == str(min(2, len(allowed)))


def test_the_header_is_cxx_too(library: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(
        '#include "tunesmith.h"\nconst tunesmith_api *model() { return tunesmith_get_api(1, nullptr); }\n'
    )
    options = ("-std=c++11", "-Wall", "-Wextra", "-Werror", "-I", library.parent)
    gcc("-x", "c++", *options, tmp_path / "main.cpp", "-c", "-o", tmp_path / "main.o")


def test_a_library_exports_its_interface_alone_and_needs_an_old_glibc_alone(library: Path) -> None:
    assert [line.split()[-1] for line in symbols(library, "--defined-only")] == ["tunesmith_get_api"]
    # glibc 2.38 renamed what parses numbers: a library that is linked there would not load elsewhere.
    assert not [line for line in symbols(library, "--undefined-only") if re.search("TVM|scanf|strto", line)]
    assert_old_glibc_alone(library)


def test_missing_instruction_sets_are_named(tmp_path: Path) -> None:
    # Abandoned by AMD in 2014; Intel never had them.
    library = linked(tmp_path, Convention.PACKED, ("sse2", "fast-gather", "fma4", "sse3", "xop"))
    told = '2 this CPU lacks fma4, xop, which the model was compiled for (a "target"\\)\n'
    assert created(program(tmp_path), library) == told


def of_version(header: Path, version: int) -> str:
    return header.read_text().replace("TUNESMITH_API_VERSION 3", f"TUNESMITH_API_VERSION {version}")


def created(program: Path, library: Path | str, **more: Any) -> str:
    """What a program says of a library that it loads and makes a session of."""
    command = [program, library, "create"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20, **more).stdout


def test_an_old_library_is_refused_by_a_new_program(library: Path, tmp_path: Path) -> None:
    (tmp_path / "tunesmith.h").write_text(of_version(library.parent / "tunesmith.h", 4))
    told = "-1 the library has version 3 of Tunesmith's C interface; the program needs 4\n"
    assert created(program(tmp_path), library) == told


@pytest.mark.parametrize("version", [1, 2])
def test_a_library_serves_programs_of_versions_before(library: Path, tmp_path: Path, version: int) -> None:
    (tmp_path / "tunesmith.h").write_text(of_version(library.parent / "tunesmith.h", version))
    old = program(tmp_path)
    for case in ("description", "runs", "errors"):
        binaries.run([old, library, case])


@pytest.fixture(scope="module", params=[0, 1, 127])
def outside(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with 4096 bytes of weights and some more in a file beside it."""
    folder = tmp_path_factory.mktemp("outside")
    compiled = kernels(folder, Convention.PACKED)
    made = plan(Convention.PACKED)
    made = dataclasses.replace(made, constants=[*made.constants, bytes(range(request.param))])
    facts = source.Facts(model="abc", toolchain="t", target='a "target"\\', threads=2, features=())
    written = linking.link(made, [compiled], facts, folder, "gcc", max_bytes_inside=1000)
    assert written == ["libmodel.so", "tunesmith.h", "libmodel.weights"]
    assert (folder / "libmodel.weights").stat().st_size == 4096 + request.param
    return folder / "libmodel.so"


def test_large_weights_are_mapped_from_a_file_beside_the_library(checks: Path, outside: Path) -> None:
    # However the library is named, and wherever the process is.
    for name, folder in ((outside, Path("/")), ("./libmodel.so", outside.parent), ("../libmodel.so", checks.parent)):
        there = folder if name != "../libmodel.so" else outside.parent / "below"
        there.mkdir(exist_ok=True)
        subprocess.run([checks, name, "runs"], cwd=there, check=True, timeout=60)
    assert_old_glibc_alone(outside)


def test_weights_of_another_build_are_refused(checks: Path, outside: Path) -> None:
    path = outside.parent / "libmodel.weights"
    content = path.read_bytes()
    rng = random.Random(3)  # noqa: S311 - places, not secrets
    places = [0, len(content) - 1, *(rng.randrange(len(content)) for _ in range(20))]
    others = [content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :] for at in places]
    try:
        for other in (*others, content[:-1], content + b"\0", b""):
            path.write_bytes(other)
            reason = "are not those of this library: they were changed, or are another build's"
            if len(other) != len(content):
                reason = f"have {len(other)} bytes, not {len(content)}"
            assert created(checks, outside) == f"-1 the weights {path} {reason}\n"
        path.unlink()
        assert created(checks, outside) == f"-1 cannot open the weights {path}: No such file or directory\n"
        os.mkfifo(path)
        assert created(checks, outside).startswith(f"-1 the weights {path} have -1 bytes")
    finally:
        path.unlink(missing_ok=True)
        path.write_bytes(content)


SUM = """
import sys
import numpy as np
from tunesmith.runtime import InferenceSession
print(float(InferenceSession(sys.argv[1]).run(["sum"], {"x": np.ones((4, 256), "float32")})[0]))
"""


@pytest.mark.engine
def test_a_bundle_with_large_weights_is_verified_and_runs(outside: Path, tmp_path: Path) -> None:
    names = ("libmodel.so", "libmodel.weights")
    digests = {name: hashlib.sha256((outside.parent / name).read_bytes()).hexdigest() for name in names}
    facts = {"model_name": "m", "model_digest": "0" * 64, "target": "t", "created_by": "a test", "files": digests}
    (tmp_path / "manifest.json").write_text(json.dumps(facts))
    with tarfile.open(tmp_path / "b.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(tmp_path / "manifest.json", "manifest.json")
        for name in names:
            archive.add(outside.parent / name, name)
    assert verifying.check(tmp_path / "b.tar").unchecked == ()
    assert float(asking.inside("onnx", SUM, tmp_path / "b.tar")) == 1536


@pytest.mark.engine
def test_engines_find_large_weights_too(outside: Path, engine_logs: Path) -> None:
    # In the sandbox, where an engine cannot make links.
    with start("library", engine_logs / "large-weights.log") as engine:
        made = engine.request("run", {"bundle": str(outside.parent), "threads": 1}, timeout=60)
    assert "sum" in [output["name"] for output in made["outputs"]]


def test_functions_of_the_runtime_that_the_driver_lacks_are_named(tmp_path: Path) -> None:
    (tmp_path / "kernel.c").write_text(
        "void *call(void) { extern void *__TVMFuncCall; return __TVMFuncCall; }\n"
        'static void *topk __asm__(".tvm_func.tvm.contrib.sort.topk") __attribute__((used));\n'
        'static void *fill __asm__(".tvm_func.tvm.contrib.random.fill") __attribute__((used));\n'
    )
    gcc("-c", tmp_path / "kernel.c", "-o", tmp_path / "kernel.o")
    facts = source.Facts(model="", toolchain="", target="", threads=1, features=())
    with pytest.raises(NotStandalone, match=r"functions of TVM's runtime: tvm\.contrib\.random\.fill$"):
        linking.link(plan(Convention.PACKED), [tmp_path / "kernel.o"], facts, tmp_path, "gcc")
    assert not (tmp_path / "libmodel.so").exists()


TWO_MODELS = r"""
#include <stdio.h>
#include "a/libmodel.h"
#include "b/libmodel.h"

static int run(const tunesmith_api *model) {
  _Alignas(64) static float x[1024], scaled[1024], sum;
  tunesmith_session *session;
  if (!model || model->create(NULL, &session)) return 1;
  for (int i = 0; i < 1024; ++i) x[i] = 1;
  tunesmith_input inputs[] = {{x, sizeof x}};
  tunesmith_output outputs[] = {{scaled, sizeof scaled}, {&sum, sizeof sum}, {0, 0}, {0, 0}};
  int status = model->run(session, inputs, 1, outputs, 4);
  printf("%s %d %g\n", model->description->model, status, (double)sum);
  model->close(session);
  return status;
}

int main(void) { return run(tunesmith_get_api_a1(1, NULL)) || run(tunesmith_get_api_b2(1, NULL)); }
"""


def archived(folder: Path, model: str, convention: Convention, max_bytes_inside: int = 1_000_000) -> list[str]:
    """Write the static library of a model, of which b2 has twice the weights; return the names of its files."""
    folder.mkdir()
    made = plan(convention)
    if model == "b2":
        # Twice the weights.
        made = dataclasses.replace(
            made, constants=[array.array("f", [2 * (place % 4) for place in range(1024)]).tobytes()]
        )
    compiled = kernels(folder, convention)
    facts = source.Facts(model=model, toolchain="t", target="x", threads=2, features=())
    binutils = linking.Binutils(ar="ar", objcopy="objcopy")
    written = linking.link(made, [compiled], facts, folder, "gcc", binutils, max_bytes_inside=max_bytes_inside)
    assert {"libmodel.so", "tunesmith.h", "libmodel.a", "libmodel.h"} <= set(written)
    return written


@pytest.mark.parametrize("max_bytes_inside", [1_000_000, 1000])
def test_a_static_program_has_two_models(tmp_path: Path, max_bytes_inside: int) -> None:
    for name, convention in (("a1", Convention.PACKED), ("b2", Convention.FFI)):
        written = archived(tmp_path / name[0], name, convention, max_bytes_inside)
        if "libmodel.weights" in written:
            shutil.copyfile(tmp_path / name[0] / "libmodel.weights", tmp_path / f"libmodel-{name}.weights")
    (tmp_path / "main.c").write_text(TWO_MODELS)
    archives = [tmp_path / "a" / "libmodel.a", tmp_path / "b" / "libmodel.a"]
    gcc(*WARNINGS, "-static", tmp_path / "main.c", *archives, "-lm", "-lpthread", "-o", tmp_path / "main")
    # Found on the PATH: the program has no folder in its name.
    environment = {"PATH": str(tmp_path)}
    # The weights are 0, 1, 2, 3, 0, ..., and twice that.
    assert binaries.run(["main"], env=environment) == "a1 0 1536\nb2 0 3072\n"


def test_a_library_for_another_machine_runs_there(tmp_path: Path) -> None:
    compiler, emulated = f"{ARM}-gcc", emulator()
    library = linked(tmp_path, Convention.FFI, ("neon", "aes", "dotprod"), compiler)
    assert_old_glibc_alone(library)
    checks = program(tmp_path, compiler=compiler)

    def run(cpu: str, case: str) -> str:
        return binaries.run([*emulated, "-cpu", cpu, checks, library, case])

    # A Cortex-A53 as qemu emulates it has no dot product.
    assert run("cortex-a53", "create").startswith("2 this CPU lacks dotprod, which the model was compiled for")
    for case in ("runs", "errors", "profile", "threads"):
        assert run("max", case) == ""


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_the_driver_is_clean_under_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    options = SANITIZERS[sanitizer]
    compiler = sanitizing_compiler(tmp_path, sanitizer)
    gcc("-O1", "-g", *options, "-fPIC", "-c", HERE / "kernels.c", "-o", tmp_path / "kernels.o")
    facts = source.Facts(model="abc", toolchain="t", target="x", threads=2, features=())
    linking.link(plan(Convention.PACKED), [tmp_path / "kernels.o"], facts, tmp_path, compiler)
    # Not forks: a child of theirs may wait for ever for a lock of their allocator that another thread held.
    cases = ("runs", "errors", "threads", "placement")
    checks = program(tmp_path, *options, "-g")
    for case in cases:
        binaries.run([checks, tmp_path / "libmodel.so", case], timeout=120)
