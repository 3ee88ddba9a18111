"""``tunesmith run`` and ``verify`` on a bundle that an engine compiled a moment ago."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from domain.artifacts import Conditions, Variant
from domain.models import TensorSpec
from tests.support import models
from tests.support.tuner.engines.fixtures import NOTHING_TUNED, home, start
from tests.support.tuner.engines.onnx import inside
from tests.support.tunesmith.commands import parsed, run
from tuner.host import hardware
from tuner.results import bundle, manifest, timing
from tuner.results.timing import Timed
from tunesmith.cli import arrays

pytestmark = pytest.mark.engine

IMAGE = TensorSpec(name="image", dtype="float32", shape=(1, 3, 16, 16))
HERE = hardware.device(1)
NAMES = ["cat", "dog", "fish", "bird", "tree"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    (folder / "model.onnx").write_bytes(models.small_network())
    shapes = {"image": list(IMAGE.shape)}
    prepare = {"path": str(folder / "model.onnx"), "input_shapes": shapes, "out_path": str(folder / "prepared.onnx")}
    with start("onnx", folder / "onnx.log") as reference:
        reference.request("prepare", prepare, timeout=60)
    with start("relay", folder / "relay.log") as relay:
        target, toolchain = f"llvm -mcpu={relay.hello['mcpu']}", relay.hello["toolchain"]
        params = {"model": str(folder / "prepared.onnx"), "target": target, "threads": 1, "records": None}
        relay.request("compile", {**params, "format": "shared", "out_dir": str(folder / "compiled")}, timeout=200)
        place = {"bundle": str(folder / "compiled"), "inputs": None, "threads": 1}
        timings = timing.interleave([Timed(name=Variant.UNTUNED, engine=relay, params=place)], rounds=3)
    facts = manifest.Manifest(
        model_digest=hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest(), model_name="small",
        variant="untuned", target=target, threads=1, device_key=HERE.key,
        toolchain=toolchain, precision="f32", created_by="a test", inputs=(IMAGE,),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(1, 5)),), format="shared",
    )  # fmt: skip
    bundle.write(folder / "b.tar", compiled=folder / "compiled", manifest=facts, report=NOTHING_TUNED)
    measured = replace(NOTHING_TUNED, timings=timings, conditions=Conditions(device=HERE.name, threads=1))
    bundle.write(folder / "measured.tar", compiled=folder / "compiled", manifest=facts, report=measured)
    return folder / "b.tar"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(home()))
    monkeypatch.chdir(tmp_path)


def test_npz_in_npz_out_classes_and_times(capsys: Capture, built: Path) -> None:
    arrays.write_constant(Path("x.npz"), [IMAGE], 1)
    Path("labels.txt").write_text("\n".join(NAMES))
    status, out, err = run(
        capsys, "run", built, "--inputs", "x.npz", "-o", "y.npz", "--labels", "labels.txt", "--top-k", 2,
        "--dump-outputs", "scores", "--print-time", "--repeat", 3, "--number", 2,
    )  # fmt: skip
    assert status == 0, err
    scores = arrays.read(Path("y.npz"), "scores")
    best = max(range(5), key=lambda index: scores.values[index])
    assert re.search(rf"^ +{best} +{scores.values[best]:.6g} +{NAMES[best]}$", out, re.MULTILINE), out
    assert out.count("\n") >= 5
    assert "Execution time summary" in out
    with zipfile.ZipFile("y.npz") as archive:
        assert archive.namelist() == ["scores.npy"]
    told = parsed(capsys, "run", built, "--inputs", "x.npz", "--top-k", 5, "--repeat", 2)
    assert len(told["samples"]) == 2
    (row,) = told["top"]["scores"]
    assert [answer["value"] for answer in row] == sorted(scores.values, reverse=True)
    assert row[0] == {"index": best, "value": scores.values[best], "label": None}


def test_times_are_told_beside_the_published_one(capsys: Capture, built: Path) -> None:
    measured = built.with_name("measured.tar")
    told = parsed(capsys, "run", measured, "--repeat", 4)
    assert len(told["samples"]) == 4
    assert told["number"] > 1, "the small network runs for less than 20 ms"
    assert told["threads"] == 1
    median = told["published"].pop("median")
    assert told["published"] == {"device": HERE.name, "threads": 1, "same_device": True, "noisy": False}
    status, out, err = run(capsys, "run", measured, "--print-time", "--repeat", 40, "--number", 1)
    assert status == 0, err
    sentence = f"Published: {median * 1000:.3f} ms on a device like this one ({HERE.name}, 1 thread)."
    assert sentence in " ".join(out.split())
    assert parsed(capsys, "run", measured, "--number", 2)["number"] == 2
    assert parsed(capsys, "run", built)["published"] is None
    _, out, _ = run(capsys, "run", built, "--print-time")
    assert "Execution time summary" in out
    assert "Published" not in out


def test_what_inputs_hold(capsys: Capture, built: Path) -> None:
    arrays.write_constant(Path("ones.npz"), [IMAGE], 1)
    dump = ["run", built, "--dump-outputs", "scores"]
    ones, zeros, random, given = (
        parsed(capsys, *dump, *options)["values"]["scores"]
        for options in (["--fill-mode", "ones"], ["--fill-mode", "zeros"], [], ["--inputs", "ones.npz"])
    )
    assert ones == given
    assert len({tuple(each) for each in (ones, zeros, random)}) == 3
    _, out, _ = run(capsys, *dump, "--fill-mode", "ones")
    assert f"[{ones[0]:.6g}, " in out


_FOREIGN = """
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
static void try_(const char *path, int flags) {
  int file = open(path, flags, 0600);
  if (file >= 0 && write(file, "foreign", 7) == 7) _exit(8);
}
__attribute__((constructor)) static void run(void) {
  try_(MINE, O_WRONLY);
  try_(MINE ".new", O_WRONLY | O_CREAT);
  try_("y.npz", O_WRONLY | O_CREAT);
  if (mmap(0, 2UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) _exit(10);
  if (!unlink(MINE) || !symlink("/etc", "/tmp/tunesmith-foreign")) _exit(9);
  _exit(7);
}
"""


def _foreign(built: Path, folder: Path, code: str) -> None:
    """Write ``f.tar``, a bundle with such libraries; the file ``mine`` is in ``folder``, too."""
    compiled, mine = folder / "compiled", folder / "mine"
    shutil.copytree(built.with_name("compiled"), compiled)
    (folder / "foreign.c").write_text(code)
    for library in compiled.glob("*.so"):
        command = ["cc", "-shared", "-fPIC", f'-DMINE="{mine}"', "-o", library, folder / "foreign.c"]
        subprocess.run(command, check=True)
    facts = bundle.open_bundle(built, folder / "unpacked")
    bundle.write(folder / "f.tar", compiled=compiled, manifest=replace(facts, files={}), report=NOTHING_TUNED)
    mine.write_text("mine")


def test_a_bundle_that_hangs_is_ended(capsys: Capture, built: Path, tmp_path: Path) -> None:
    _foreign(
        built, tmp_path, "#include <unistd.h>\n__attribute__((constructor)) static void run(void) { for (;;) pause(); }"
    )
    status, out, err = run(capsys, "run", "f.tar", "--max-seconds", 4)
    assert (status, out) == (5, "")
    assert err == "error[run_time_limit]: the bundle ran for more than 4 s\nhint: Allow more with --max-seconds.\n"


def test_a_foreign_bundle_is_kept_from_files_and_memory(capsys: Capture, built: Path, tmp_path: Path) -> None:
    _foreign(built, tmp_path, _FOREIGN)
    mine = tmp_path / "mine"
    before = sorted(tmp_path.iterdir())
    status, _, err = run(capsys, "run", "f.tar", "-o", "y.npz", "--memory-mb", 1024)
    assert (status, "exit status 7" in err) == (1, True), err
    assert mine.read_text() == "mine"
    assert run(capsys, "run", built, "--memory-mb", 1024)[0] == 0
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["--dump-outputs", "logits"], 5, "unknown_output"),
        (["--labels", "few.txt"], 5, "invalid_labels"),
        (["--labels", "none.txt"], 5, "unreadable_file"),
        (["--inputs", "wrong.npz"], 5, "invalid_inputs"),
        (["--inputs", "few.txt"], 5, "invalid_inputs"),
        (["--fill-mode", "twos"], 2, "usage"),
        (["-o", "nowhere/y.npz"], 5, "unwritable_file"),
    ],
)
def test_what_is_wrong(capsys: Capture, built: Path, arguments: list[str], status: int, code: str) -> None:
    Path("few.txt").write_text("cat\ndog\n")
    arrays.write_constant(Path("wrong.npz"), [TensorSpec(name="image", dtype="float32", shape=(1, 3, 8, 8))], 1)
    found, out, err = run(capsys, "run", built, *arguments)
    assert (found, out) == (status, "")
    assert err.startswith(f"error[{code}]: ")
    if code not in ("unreadable_file", "unwritable_file"):
        assert "\nhint: " in err


def test_a_bundle_is_verified_with_its_model(capsys: Capture, built: Path) -> None:
    told = parsed(capsys, "verify", built, "--model", built.with_name("model.onnx"))
    assert told["sha256"] == hashlib.sha256(built.read_bytes()).hexdigest()
    assert told["libraries"]["libmodel.so"]["exports"] == ["tunesmith_get_api"]
    assert told["libraries"].keys() == {"libmodel.so"}
    assert "example.py" in told["unchecked"]
    [output] = told["outputs"]
    assert (output["output"], output["passed"]) == ("scores", True)
    status, out, err = run(capsys, "verify", built)
    assert (status, err) == (0, "")
    assert "native code" in out


def changed(built: Path, into: Path, library: Path | None = None, **facts: str) -> Path:
    """The bundle with another library or other facts, and the digests of these."""
    manifest = bundle.open_bundle(built, into / "unpacked")
    if library:
        shutil.copyfile(library, into / "unpacked" / "libmodel.so")
    bundle.write(
        into / "changed.tar", compiled=into / "unpacked", manifest=replace(manifest, files={}, **facts),
        report=NOTHING_TUNED,
    )  # fmt: skip
    return into / "changed.tar"


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        ('extern int system(const char *); int called(void) { return system("id"); }', [], "imports system, which"),
        ("void ready(void) {}", [], "exports ready; only tunesmith_get_api"),
        ("", ["-Wl,-rpath,/tmp"], "loads libraries from '/tmp'"),
        ("", ["-z", "execstack"], "has an executable stack"),
        ("", ["-Wl,--no-as-needed", "-l:libdl.so.2", "-l:libutil.so.1"], "loads libutil.so.1"),
    ],
)
def test_a_library_that_does_more_than_a_model_is_refused(
    capsys: Capture, built: Path, tmp_path: Path, source: str, options: list[str], told: str
) -> None:
    hidden = 'int called(void) __attribute__((visibility("hidden")));' if "called" in source else ""
    (tmp_path / "l.c").write_text(f"{hidden}int tunesmith_get_api(void) {{ return 0; }}\n{source}\n")
    command = ["cc", "-shared", "-fPIC", "-o", tmp_path / "l.so", tmp_path / "l.c", *options]
    subprocess.run(command, check=True)
    status, out, err = run(capsys, "verify", changed(built, tmp_path, tmp_path / "l.so"))
    assert (status, out) == (5, "")
    assert err.startswith(f"error[suspicious_library]: libmodel.so {told}"), err


def test_a_bundle_of_another_model_is_refused(capsys: Capture, built: Path, tmp_path: Path) -> None:
    (tmp_path / "other.onnx").write_bytes(models.small_network(seed=1))
    for arguments in (["--model", "other.onnx"], ["--digest", "sha256:" + "0" * 64]):
        status, _, err = run(capsys, "verify", built, *arguments)
        assert (status, err.startswith("error[wrong_digest]: ")) == (5, True), err
    digest = hashlib.sha256((tmp_path / "other.onnx").read_bytes()).hexdigest()
    posing = changed(built, tmp_path, model_digest=digest)
    status, _, err = run(capsys, "verify", posing, "--model", "other.onnx")
    assert (status, err.startswith("error[wrong_outputs]: output scores differs from ONNX Runtime's")) == (5, True), err


_ROWS = """
import numpy as np
random = np.random.default_rng(0)
images = random.random((12, 3, 16, 16), dtype=np.float32)
np.savez("plain.npz", image=images)
np.savez("labelled.npz", image=images, labels=random.integers(0, 5, 12))
np.savez("other.npz", picture=images)
np.savez("beyond.npz", image=images, labels=np.full(12, 5))
told = None
"""


def test_a_bundle_is_checked_on_rows(capsys: Capture, built: Path, tmp_path: Path) -> None:
    inside.run(f"import os; os.chdir({str(tmp_path)!r}){_ROWS}")
    model = ["--model", built.with_name("model.onnx")]
    told = parsed(capsys, "check", built, "--data", "labelled.npz", *model)
    assert (told["passed"], told["precision"], told["seeds"]) == (True, "f32", [0, 1, 2])
    assert (told["rows"]["rows"], told["rows"]["elements"]) == (12, 60)
    assert told["rows"]["labelled"]["build"] == told["rows"]["labelled"]["reference"]
    status, out, err = run(capsys, "check", built, "--data", "plain.npz", *model)
    assert (status, err) == (0, "")
    assert "12 rows of your data" in " ".join(out.split())
    alone = parsed(capsys, "check", built, "--data", "labelled.npz")
    assert alone["passed"] is None
    assert alone["rows"]["labelled"]["build"] == told["rows"]["labelled"]["build"]
    status, out, _ = run(capsys, "check", built, "--data", "labelled.npz")
    assert (status, "top-1 on labels" in out) == (0, True)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ("plain.npz", "no_reference"),
        ("other.npz", "data_mismatch"),
        ("beyond.npz", "data_mismatch"),
        ("none.npz", "unreadable_file"),
        ("text.npz", "invalid_data_set"),
    ],
)
def test_rows_that_prove_nothing_are_refused(
    capsys: Capture, built: Path, tmp_path: Path, rows: str, code: str
) -> None:
    inside.run(f"import os; os.chdir({str(tmp_path)!r}){_ROWS}")
    Path("text.npz").write_text("no rows")
    status, out, err = run(capsys, "check", built, "--data", rows)
    assert (status, out) == (5, "")
    assert err.startswith(f"error[{code}]: "), err
    assert "\nhint: " in err


@pytest.mark.skipif("avx512_bf16" not in Path("/proc/cpuinfo").read_text(), reason="the CPU has no bf16")
def test_a_runtime_is_checked_by_the_limits_of_its_own_precision(capsys: Capture, built: Path, tmp_path: Path) -> None:
    inside.run(f"import os; os.chdir({str(tmp_path)!r}){_ROWS}")
    facts, compiled = bundle.open_bundle(built, tmp_path / "unpacked"), built.with_name("compiled")
    for precision in ("bf16", "f32"):
        runtime = manifest.OtherRuntime(
            name="openvino", version="2026", model=bundle.PREPARED, threads=1, precision=precision,
            options={"INFERENCE_PRECISION_HINT": "bf16"},
        )  # fmt: skip
        bundle.write(
            tmp_path / f"{precision}.tar", compiled=compiled, manifest=replace(facts, files={}, runtime=runtime),
            report=NOTHING_TUNED, model=built.with_name("prepared.onnx"),
        )  # fmt: skip
    told = parsed(capsys, "check", "bf16.tar", "--data", "plain.npz")
    assert (told["passed"], told["precision"]) == (True, "f32"), "the library's"
    status, _, err = run(capsys, "verify", "bf16.tar", "--model", built.with_name("model.onnx"))
    assert status == 0, err
    status, out, _ = run(capsys, "check", "f32.tar", "--data", "plain.npz")
    assert (status, out.startswith("NOT accurate enough")) == (1, True), "it computes in bf16, and claims f32"


def test_a_wrong_bundle_fails_its_check(capsys: Capture, built: Path, tmp_path: Path) -> None:
    inside.run(f"import os; os.chdir({str(tmp_path)!r}){_ROWS}")
    (tmp_path / "other.onnx").write_bytes(models.small_network(seed=1))
    status, out, _ = run(capsys, "check", built, "--data", "plain.npz", "--model", "other.onnx")
    assert (status, out.startswith("NOT accurate enough")) == (1, True)
