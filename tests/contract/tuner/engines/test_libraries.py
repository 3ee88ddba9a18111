"""Libraries of real builds, run without TVM: by numpy alone, and bit for bit as TVM runs the same objects."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import binaries, models
from tests.support.binaries import copy_with_libc
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import NOTHING_TUNED, Twin, manifest, start
from tuner.host.session import EngineSession
from tuner.results import bundle

pytestmark = pytest.mark.engine

WITHOUT_TVM = """
import sys
from tunesmith.runtime import InferenceSession
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"httpx", "rich", "typer", "pydantic", "tvm", "onnxruntime"}, loaded
import numpy as np
path, inputs, outputs, threads = sys.argv[1:]
feeds = dict(np.load(inputs))
with InferenceSession(path, threads=int(threads)) as session:
    names = [output.name for output in session.get_outputs()]
    np.savez(outputs, **dict(zip(names, session.run(None, feeds))))
    unaligned = {name: np.concatenate([array.ravel()[:1], array.ravel()])[1:].reshape(array.shape)
                 for name, array in feeds.items()}
    again = session.run(names[-1:], unaligned)
    assert again[0].tobytes() == np.load(outputs)[names[-1]].tobytes()
    mine = np.empty_like(again[0])
    frozen = {name: array.copy() for name, array in feeds.items()}
    for array in frozen.values():
        array.flags.writeable = False
    assert session.run([], frozen, None, out={names[-1]: mine})[-1] is mine
    assert mine.tobytes() == again[0].tobytes()
    for wrong in ({"none": mine}, {names[-1]: mine[..., :-1]}, {names[-1]: mine.astype(np.float64)}):
        try:
            session.run(None, feeds, out=wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)
    assert session.get_modelmeta().custom_metadata_map == session.metadata
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert len(session.time(feeds, number=2, repeat=3)) == 3
    seconds = session.profile(feeds)
    print(__import__("json").dumps({"inputs": session.get_inputs(), "metadata": session.metadata,
        "threads": session.threads, "kernels": [name for name, _ in seconds]}))
"""
PLAIN_RELAY = """
import json, sys
import numpy as np
import tvm
from tvm.contrib import graph_executor
folder, inputs, outputs, threads = sys.argv[1:]
tvm.get_global_func("runtime.config_threadpool")(1, int(threads))
graph = open(f"{folder}/mod.json").read()
executor = graph_executor.create(graph, tvm.runtime.load_module(f"{folder}/mod.so"), tvm.cpu(0))
executor.load_params(open(f"{folder}/mod.params", "rb").read())
for name, array in np.load(inputs).items():
    executor.set_input(name, array)
executor.run()
names = json.loads(graph)["metadata"]["outputs"]
np.savez(outputs, **{name: executor.get_output(place).numpy() for place, name in enumerate(names)})
"""
PLAIN_RELAX = """
import json, sys
import numpy as np
import tvm
from tvm import relax
folder, inputs, outputs, threads = sys.argv[1:]
tvm.get_global_func("runtime.config_threadpool")(1, int(threads))
signature = json.load(open(f"{folder}/mod.json"))
machine = relax.VirtualMachine(tvm.runtime.load_module(f"{folder}/mod.so"), tvm.cpu(0))
arrays = np.load(inputs)
answer = machine["main"](*[tvm.runtime.tensor(arrays[spec["name"]]) for spec in signature["inputs"]])
values = [answer] if isinstance(answer, tvm.runtime.Tensor) else list(answer)
np.savez(outputs, **{spec["name"]: value.numpy() for spec, value in zip(signature["outputs"], values)})
"""
MODEL = b"the bytes of a model"
PLAIN = {"relay": PLAIN_RELAY, "relax": PLAIN_RELAX}


def run_alone(path: Path, inputs: Path, outputs: Path, threads: int = 1) -> Any:
    """What a library says about itself; its outputs are written."""
    return json.loads(asking.inside("onnx", WITHOUT_TVM, path, inputs, outputs, str(threads)))


def assert_equal_to_tvm(engine: str, folder: Path, inputs: Path, scratch: Path) -> None:
    for threads in (1, 2):
        run_alone(folder / "libmodel.so", inputs, scratch / "alone.npz", threads)
        asking.inside(engine, PLAIN[engine], folder, inputs, scratch / "tvm.npz", str(threads))
        asking.assert_same_bytes(scratch / "alone.npz", scratch / "tvm.npz")


@pytest.fixture(scope="module")
def built(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    answer = asking.build(twin.session, twin.place, folder, model_digest="ab" * 32)
    assert {"libmodel.so", "tunesmith.h"} <= set(answer["files"])
    return folder


def test_a_library_computes_what_tvm_does_bit_for_bit(
    twin: Twin, built: Path, inputs: list[Path], tmp_path: Path
) -> None:
    assert_equal_to_tvm(twin.name, built, inputs[0], tmp_path)


MODULES = """
import sys
import numpy
before = set(sys.modules)
import tunesmith.runtime
print(*sorted(set(sys.modules) - before))
"""


def test_importing_the_runtime_imports_little_beside_numpy() -> None:
    imported = set(asking.inside("onnx", MODULES).split())
    assert {"tunesmith.runtime", "tunesmith.archives"} <= imported
    assert not imported & {"dataclasses", "hashlib", "inspect", "tempfile", "zipfile"}


def test_a_library_describes_itself(twin: Twin, built: Path, inputs: list[Path], tmp_path: Path) -> None:
    told = run_alone(built / "libmodel.so", inputs[0], tmp_path / "outputs.npz", 2)
    assert told["inputs"] == [["image", [1, 3, 16, 16], "tensor(float)", "float32"]]
    assert told["threads"] == 2
    assert told["metadata"]["model"] == "ab" * 32
    assert told["metadata"]["target"] == twin.target
    toolchain = twin.session.hello["toolchain"]
    assert told["metadata"]["toolchain"] == f"{twin.name}, TVM {toolchain['tvm']}, LLVM {toolchain['llvm']}"
    assert any("conv2d" in name for name in told["kernels"])


def test_a_library_is_little_larger_than_its_weights(built: Path) -> None:
    # The small network has 2 KB of weights.
    assert (built / "libmodel.so").stat().st_size < 200_000
    # What checks arguments would be most of the code.
    assert not re.search(b"Assert fail|expected to match", (built / "mod.so").read_bytes())


TO_BYTES = "import sys, numpy as np; open(sys.argv[2], 'wb').write(np.load(sys.argv[1])[sys.argv[3]].tobytes())"


def in_c(folder: Path) -> Path:
    """A program that runs libraries without Python."""
    command = ["gcc", "-O1", "-I", folder, Path(__file__).with_name("run.c"), "-o", folder / "run"]
    subprocess.run(list(map(str, command)), check=True, timeout=60)
    return folder / "run"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root folder")
def test_a_library_runs_where_there_is_nothing_but_libc(built: Path, inputs: list[Path], tmp_path: Path) -> None:
    program, root = in_c(built), tmp_path / "root"
    copy_with_libc(root, program, built / "libmodel.so")
    asking.inside("onnx", TO_BYTES, inputs[0], root / "inputs", "image")
    binaries.run(["chroot", root, program, "/inputs", "/outputs", built / "libmodel.so"])
    run_alone(built / "libmodel.so", inputs[0], tmp_path / "alone.npz")
    asking.inside("onnx", TO_BYTES, tmp_path / "alone.npz", tmp_path / "expected", "scores")
    assert (root / "outputs").read_bytes() == (tmp_path / "expected").read_bytes()


def test_a_library_is_clean_under_valgrind(twin: Twin, inputs: list[Path], tmp_path: Path) -> None:
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is missing: apt install valgrind libc6-dbg")
    # Valgrind knows no AVX-512.
    built = tmp_path / "haswell"
    asking.build(twin.session, twin.place, built, target="llvm -mcpu=haswell", threads=2)
    asking.inside("onnx", TO_BYTES, inputs[0], tmp_path / "inputs", "image")
    program = [in_c(built), tmp_path / "inputs", tmp_path / "outputs", built / "libmodel.so"]
    command = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", *program]
    binaries.run(command, timeout=120)
    run_alone(built / "libmodel.so", inputs[0], tmp_path / "alone.npz")
    asking.inside("onnx", TO_BYTES, tmp_path / "alone.npz", tmp_path / "expected", "scores")
    assert (tmp_path / "outputs").read_bytes() == (tmp_path / "expected").read_bytes()


@pytest.fixture(scope="module")
def library_engine(engine_logs: Path) -> Iterator[EngineSession]:
    with start("library", engine_logs / "library.log") as session:
        yield session


def test_verification_and_benchmark_run_what_is_published_alone(
    library_engine: EngineSession, built: Path, inputs: list[Path], tmp_path: Path
) -> None:
    asking.run(library_engine, built, inputs[0], tmp_path / "engine.npz")
    run_alone(built / "libmodel.so", inputs[0], tmp_path / "alone.npz")
    asking.assert_same_bytes(tmp_path / "alone.npz", tmp_path / "engine.npz")
    loaded = Path(f"/proc/{library_engine.pid}/maps").read_text()
    assert "libmodel.so" in loaded
    assert not re.search("tvm|onnxruntime", loaded)


def test_a_compilers_engine_runs_the_library_too(twin: Twin, built: Path, inputs: list[Path], tmp_path: Path) -> None:
    """What ``tunesmith run`` does."""
    asking.run(twin.session, built, inputs[0], tmp_path / "engine.npz")
    run_alone(built / "libmodel.so", inputs[0], tmp_path / "alone.npz")
    asking.assert_same_bytes(tmp_path / "alone.npz", tmp_path / "engine.npz")


@pytest.mark.parametrize("alone", [False, True])
def test_a_librarys_runs_are_timed(
    twin: Twin, library_engine: EngineSession, built: Path, inputs: list[Path], alone: bool
) -> None:
    engine = library_engine if alone else twin.session
    timing = {"bundle": str(built), "inputs": str(inputs[0]), "threads": 2, "number": 3, "repeat": 4}
    samples = engine.request("time", timing, timeout=60)["samples"]
    assert len(samples) == 4
    assert 0 < min(samples) < 1
    content = (built / "libmodel.so").read_bytes()
    try:
        (built / "libmodel.so").write_bytes(b"\x7fELF")
        params = {"bundle": str(built), "inputs": str(inputs[0]), "outputs": None, "threads": 1}
        assert asking.refusal(engine, "run", params).engine_code == "invalid_bundle"
    finally:
        (built / "libmodel.so").write_bytes(content)


def test_a_profile_has_every_kernel_with_its_tensors(
    library_engine: EngineSession, built: Path, inputs: list[Path]
) -> None:
    params = {"bundle": str(built), "inputs": str(inputs[0]), "threads": 1, "repeat": 3}
    found = library_engine.request("profile", params, timeout=60)
    layers = found["layers"]
    assert all(0 < layer["seconds"] < found["seconds"] < 1 for layer in layers)
    assert all(layer["outputs"] and layer["inputs"] for layer in layers)
    first = next(layer for layer in layers if "conv" in layer["name"])
    sizes = {role: max(map(math.prod, first[role])) for role in ("inputs", "weights", "outputs")}
    assert (sizes["inputs"], sizes["weights"] % 27) == (3 * 16 * 16, 0)
    assert first["bytes"] >= 4 * sum(sizes.values())
    (built / "kernels.json").rename(built / "hidden")
    try:
        # As builds of earlier releases.
        params["threads"] = 2
        assert library_engine.request("profile", params, timeout=60)["layers"][0].keys() == {"name", "seconds"}
    finally:
        (built / "hidden").rename(built / "kernels.json")


@pytest.fixture
def built_bundle(twin: Twin, built: Path, tmp_path: Path) -> Path:
    """A bundle, beside which its files lie in ``unpacked``."""
    facts = manifest(twin, model_digest=hashlib.sha256(MODEL).hexdigest())
    path = tmp_path / "b.tar"
    written = bundle.write(path, compiled=built, manifest=facts, report=NOTHING_TUNED)
    assert written.files.keys() >= set(bundle.STANDALONE)
    assert bundle.open_bundle(path, tmp_path / "unpacked") == written
    return path


def test_a_bundle_runs_with_numpy_alone_once_its_digests_are_right(
    reference: EngineSession, prepared: Path, built_bundle: Path, built: Path, inputs: list[Path], tmp_path: Path
) -> None:
    path = built_bundle
    run_alone(path, inputs[0], tmp_path / "actual.npz")
    [output] = asking.compare_with_model(reference, prepared, inputs[0], tmp_path / "actual.npz")
    assert output["passed"]
    run_alone(tmp_path / "unpacked", inputs[0], tmp_path / "again.npz")
    asking.assert_same_bytes(tmp_path / "actual.npz", tmp_path / "again.npz")
    content = path.read_bytes()
    place = content.index((built / "libmodel.so").read_bytes()) + 5000
    (tmp_path / "changed.tar").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(AssertionError, match=r"LoadError: the sha256 of libmodel\.so is [0-9a-f]{64}, not"):
        run_alone(tmp_path / "changed.tar", inputs[0], tmp_path / "never.npz")


def test_the_client_alone_runs_a_bundle(twin: Twin, built_bundle: Path, inputs: list[Path], tmp_path: Path) -> None:
    client_alone = asking.with_numpy_alone(tmp_path / "packages")

    def run(*arguments: str | Path, command: str = "run") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tunesmith", command, built_bundle, *arguments],
            cwd=tmp_path,
            env=client_alone,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = run("--inputs", inputs[0], "--output", "y.npz", "--repeat", "3", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["outputs"] == [{"name": "scores", "dtype": "float32", "shape": [1, 5]}]
    assert len(told["samples"]) == 3
    assert (told["threads"], told["published"]) == (1, None)
    asking.run(twin.session, tmp_path / "unpacked", inputs[0], tmp_path / "engine.npz")
    asking.assert_same_bytes(tmp_path / "engine.npz", tmp_path / "y.npz")
    assert "scores" in run("--fill-mode", "ones", "--print-top", "2").stdout
    (tmp_path / "model.onnx").write_bytes(MODEL)
    verified = run("--model", "model.onnx", "--json", command="verify")
    assert (verified.returncode, json.loads(verified.stdout)["outputs"]) == (0, None), verified.stderr
    assert "not compared" in verified.stderr
    refused = run("--dump-outputs", "logits")
    assert (refused.returncode, "the bundle has no output 'logits'" in refused.stderr) == (5, True)
    (tmp_path / "text.npz").write_text("no arrays")
    refused = run("--inputs", "text.npz")
    assert (refused.returncode, "is not an .npz file" in refused.stderr) == (5, True)


def test_a_library_sorts_as_tvm_does(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    prepared, specs = asking.prepare(reference, models.ranked(), tmp_path)
    inputs = asking.make_inputs(reference, specs, tmp_path)
    out = tmp_path / "out"
    assert "libmodel.so" in asking.build(twin.session, twin.place, out, model=str(prepared))["files"]
    assert_equal_to_tvm(twin.name, out, inputs, tmp_path)
    assert asking.agrees(twin.session, out, reference, prepared, inputs, tmp_path)


def test_a_library_takes_and_gives_truth_values(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    prepared, specs = asking.prepare(reference, models.masked(), tmp_path)
    assert {spec["name"]: spec["dtype"] for spec in specs} == {"flags": "bool", "x": "float32"}
    inputs = asking.make_inputs(reference, specs, tmp_path)
    out = tmp_path / "out"
    assert "libmodel.so" in asking.build(twin.session, twin.place, out, model=str(prepared))["files"]
    assert_equal_to_tvm(twin.name, out, inputs, tmp_path)
    assert run_alone(out / "libmodel.so", inputs, tmp_path / "alone.npz")["inputs"][0][2:] == ["tensor(bool)", "bool"]
    assert asking.agrees(twin.session, out, reference, prepared, inputs, tmp_path)


ALLOCATED = """
import ctypes, sys
import numpy as np
from tunesmith.runtime import InferenceSession
names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]
mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Info
def allocated():
    info = mallinfo2()
    return info.uordblks + info.hblkhd
memory = np.zeros(4 * 3 * 256 * 256 + 64, np.uint8)
start = -memory.ctypes.data % 64
image = memory[start:start - 64 or None].view(np.float32).reshape(1, 3, 256, 256)
with InferenceSession(sys.argv[1], threads=2) as session:
    before = allocated()
    session.run(None, {"image": image})
    print(allocated() - before)
"""


def test_kernels_get_their_workspaces_from_the_arena(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    prepared, _ = asking.prepare(reference, models.small_network(), tmp_path, image=[1, 3, 256, 256])
    asking.build(twin.session, twin.place, tmp_path / "out", threads=2, model=str(prepared))
    # A padded image has 800 KB.
    assert int(asking.inside("onnx", ALLOCATED, tmp_path / "out" / "libmodel.so")) < 50_000


@pytest.mark.parametrize(
    ("model", "operator"),
    [(models.nonzero_places, "NonZero (1×)"), (models.suppressed, "NonMaxSuppression (1×)")],
    ids=["NonZero", "NonMaxSuppression"],
)
def test_the_graph_executor_has_no_counts_that_depend_on_values(
    relay_twin: Twin, reference: EngineSession, tmp_path: Path, model: Callable[[], bytes], operator: str
) -> None:
    prepared, _ = asking.prepare(reference, model(), tmp_path)
    params = {**relay_twin.place, "model": str(prepared), "records": None, "out_dir": str(tmp_path / "out")}
    refused = asking.refusal(relay_twin.session, "compile", params)
    assert refused.engine_code == "compile_failed"
    assert f"depend on values: {operator}." in str(refused.hint)


@pytest.mark.parametrize(
    ("model", "operator"),
    [(models.different_values, "Unique (1×)"), (models.nonzero_of_scalar, "NonZero (1×)")],
    ids=["Unique", "scalar"],
)
def test_counts_without_a_limit_need_tvm(
    relax_twin: Twin, reference: EngineSession, tmp_path: Path, model: Callable[[], bytes], operator: str
) -> None:
    prepared, specs = asking.prepare(reference, model(), tmp_path)
    out = tmp_path / "out"
    files = asking.build(relax_twin.session, relax_twin.place, out, model=str(prepared))["files"]
    assert "libmodel.so" not in files
    assert "needs-tvm.txt" in files
    assert (out / "needs-tvm.txt").read_text() == f"tensors whose sizes only a run decides: {operator}\n"
    inputs = asking.make_inputs(reference, specs, tmp_path)
    assert asking.agrees(relax_twin.session, out, reference, prepared, inputs, tmp_path)


@pytest.mark.parametrize("least", [0.2, 2.0], ids=["some", "none"])
def test_a_run_decides_the_shapes_of_outputs(
    relax_twin: Twin, reference: EngineSession, tmp_path: Path, least: float
) -> None:
    """Boxes that are chosen of those whose scores exceed ``least``."""
    prepared, specs = asking.prepare(reference, models.suppressed(least=least), tmp_path)
    out = tmp_path / "out"
    files = asking.build(relax_twin.session, relax_twin.place, out, model=str(prepared))["files"]
    assert "libmodel.so" in files
    for seed in range(3):
        inputs = asking.make_inputs(reference, specs, tmp_path, seed)
        assert_equal_to_tvm("relax", out, inputs, tmp_path)
        assert asking.agrees(relax_twin.session, out, reference, prepared, inputs, tmp_path)
    told = asking.inside("onnx", SHAPES, out / "libmodel.so", inputs)
    largest, made = json.loads(told)
    assert largest == {"chosen": [None, 3], "kept": [None, 4]}
    assert (made[0][0] > 0, made[0][0]) == (least < 1, made[1][0])


@pytest.mark.parametrize(
    "model",
    [models.nonzero_of_types, models.selected_again, models.places_up_to_a_sum],
    ids=["types", "again", "slice"],
)
def test_a_library_selects_what_is_not_zero(
    relax_twin: Twin, reference: EngineSession, tmp_path: Path, model: Callable[[], bytes]
) -> None:
    prepared, specs = asking.prepare(reference, model(), tmp_path)
    out = tmp_path / "out"
    assert "libmodel.so" in asking.build(relax_twin.session, relax_twin.place, out, model=str(prepared))["files"]
    for seed in range(2):
        inputs = asking.make_inputs(reference, specs, tmp_path, seed)
        assert_equal_to_tvm("relax", out, inputs, tmp_path)
        assert asking.agrees(relax_twin.session, out, reference, prepared, inputs, tmp_path)


SHAPES = """
import json, sys
import numpy as np
from tunesmith.runtime import InferenceSession
session = InferenceSession(sys.argv[1])
feeds = dict(np.load(sys.argv[2]))
found = session.run(None, feeds)
kept = np.full(found[1].shape, -1, np.float32)
assert session.run(["kept"], feeds, out={"kept": kept})[0] is kept and kept.tobytes() == found[1].tobytes()
for wrong in (np.empty((3000, 4), np.float32), np.empty(kept.shape, np.float64)):
    try:
        session.run(None, feeds, out={"kept": wrong})
    except ValueError as error:
        assert str(list(kept.shape)) in str(error), error
    else:
        raise AssertionError(wrong.shape)
try:
    session.run(["other"], feeds)
except ValueError as error:
    assert "no output 'other'" in str(error)
shapes = {output.name: output.shape for output in session.get_outputs()}
print(json.dumps([shapes, [array.shape for array in found]]))
"""


def test_a_library_of_several_sizes_has_no_sizes_that_a_run_decides(
    relax_twin: Twin, reference: EngineSession, tmp_path: Path
) -> None:
    prepared, _ = asking.prepare(reference, models.suppressed(), tmp_path)
    files = asking.build(relax_twin.session, relax_twin.place, tmp_path / "out", model=str(prepared), part=True)[
        "files"
    ]
    assert "model.part" not in files
    need = (tmp_path / "out" / "needs-tvm.txt").read_text()
    assert need == "tensors whose sizes only a run decides: NonMaxSuppression (1×)\n"


TWO_MODELS = """
import sys, threading
import numpy as np
from tunesmith.runtime import InferenceSession
feeds = dict(np.load(sys.argv[1]))
paths = sys.argv[2:]
def run(session, times=1):
    return {session.run(None, feeds)[0].tobytes() for _ in range(times)}
sessions = [InferenceSession(path, threads=2) for path in paths]
assert [session.metadata["toolchain"].split(",")[0] for session in sessions] == ["relay", "relax"]
expected = [run(session) for session in sessions]
wrong = []
def alternate(own):
    for _ in range(100):
        for session, outputs in zip((*sessions, *own), expected * 2):
            if run(session) != outputs:
                wrong.append(session.metadata["toolchain"])
threads = [threading.Thread(target=alternate, args=([InferenceSession(path) for path in paths],)) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not wrong, wrong
sessions[0].close()
assert run(sessions[1]) == expected[1]
for place, outputs in enumerate(expected):
    np.save(f"{sys.argv[1]}.{place}.npy", np.frombuffer(*outputs, "float32")[None])
"""
AS_ALONE = """
import sys
import numpy as np
one, other = np.load(sys.argv[1])["scores"], np.load(sys.argv[2])
assert one.tobytes() == other.tobytes()
"""


def test_a_process_runs_several_models_from_several_threads(
    relay_twin: Twin, relax_twin: Twin, inputs: list[Path], tmp_path: Path
) -> None:
    libraries = [twin.untuned / "libmodel.so" for twin in (relay_twin, relax_twin)]
    feeds = shutil.copy(inputs[0], tmp_path)
    asking.inside("onnx", TWO_MODELS, feeds, *libraries)
    for place, library in enumerate(libraries):
        run_alone(library, inputs[0], tmp_path / "alone.npz")
        asking.inside("onnx", AS_ALONE, tmp_path / "alone.npz", f"{feeds}.{place}.npy")
