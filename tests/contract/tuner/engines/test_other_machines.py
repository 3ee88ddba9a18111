"""Libraries that are cross-built for aarch64, run by qemu's user mode, and compared with ONNX Runtime here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

TRIPLE = "aarch64-linux-gnu"
DIGEST = "5a" * 32
TO_BYTES = "import sys, numpy as np; open(sys.argv[2], 'wb').write(np.load(sys.argv[1])['image'].tobytes())"
TO_ARRAYS = "import sys, numpy as np; np.savez(sys.argv[2], scores=np.fromfile(sys.argv[1], 'float32')[None])"


@pytest.fixture(scope="module")
def crossed(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries, and two programs that use them."""
    if not shutil.which(f"{TRIPLE}-gcc") or not shutil.which("qemu-aarch64"):
        pytest.skip(f"no compiler or emulator: apt install gcc-{TRIPLE} qemu-user")
    folder = tmp_path_factory.mktemp("crossed")
    target = f"llvm -mtriple={TRIPLE} -mcpu=cortex-a72"
    params = {**twin.place, "target": target, "records": None, "out_dir": str(folder), "format": "static"}
    answer = twin.session.request("compile", {**params, "model_digest": DIGEST}, timeout=200)
    assert {"libmodel.so", "tunesmith.h", "libmodel.a", "libmodel.h"} <= set(answer["files"])
    built = [f"{TRIPLE}-gcc", "-O1", "-I", folder, Path(__file__).with_name("run.c")]
    linked = [f"-DLINKED=tunesmith_get_api_{DIGEST[:16]}", folder / "libmodel.a", "-static", "-lm", "-lpthread"]
    for name, options in (("loads", []), ("linked", linked)):
        subprocess.run(list(map(str, [*built, *options, "-o", folder / name])), check=True, timeout=60)
    return folder


@pytest.mark.parametrize("name", ["loads", "linked"])
def test_a_library_for_another_machine_computes_the_same(
    name: str, crossed: Path, reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    asking.inside("onnx", TO_BYTES, inputs[0], tmp_path / "inputs")
    emulated = ["qemu-aarch64", "-cpu", "cortex-a72", "-L", f"/usr/{TRIPLE}", crossed / name]
    command = [*emulated, tmp_path / "inputs", tmp_path / "outputs", crossed / "libmodel.so"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    asking.inside("onnx", TO_ARRAYS, tmp_path / "outputs", tmp_path / "actual.npz")
    [output] = asking.compare_with_model(reference, prepared, inputs[0], tmp_path / "actual.npz")
    assert output["passed"], output
