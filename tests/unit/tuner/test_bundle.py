from __future__ import annotations

import ast
import dataclasses
import io
import json
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.artifacts import Conditions, Contender, FailedTask, OutputError, Report, Runtime, Variant, Verification
from domain.models import TensorSpec
from tuner.host import catalogue
from tuner.results import bundle, bundle_texts
from tuner.results.bundle import Manifest
from tuner.results.manifest import OtherRuntime
from tuner.results.timing import of_samples

MANIFEST = Manifest(
    model_digest="ab" * 32,
    model_name="ppocr-cls",
    variant="tuned",
    target="llvm -mcpu=znver3",
    threads=2,
    device_key="x86_64/amd/avx2/t2",
    toolchain={"engine": "relay", "tvm": "0.19.0", "llvm": "22"},
    precision="f32",
    inputs=(TensorSpec(name="x", dtype="float32", shape=(1, 3, 48, 192)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(1, 2)),),
    created_by="tunesmith 0.1.0",
)
ERROR = OutputError(output="y", dtype="float32", max_abs=1e-7, max_rel=2e-7, atol=1e-5, rtol=5e-4, passed=True)
REPORT = Report(
    timings={variant: of_samples([1e-3, 1.1e-3, 1.2e-3]) for variant in Variant},
    verifications={Variant.TUNED: Verification(variant=Variant.TUNED, seeds=(0, 1, 2), outputs=(ERROR,))},
    published=Variant.TUNED,
    speedup_over_untuned=1.5,
    speedup_over_reference=0.9,
    summary="Tuning made it 1.50× as fast.",
    engines={Variant.TUNED: "relay/tvm-0.19.0/llvm-22.1.8"},
    choice=("autotvm leads.",),
    portfolio=(
        Contender(name="ansor", tuner="ansor", engine="relay", seconds=1e-3, trials=64, verdict="published"),
        Contender(name="autotvm", tuner="autotvm", engine="relay", verdict="wrong results"),
    ),
    conditions=Conditions(
        device="Zen", threads=2, governor="performance", megahertz=(3000.0, 3700.0), load=0.25, drift=0.08, noisy=True,
        reasons=("the calibration loop varied by 8%",),
    ),
    failed_tasks=(FailedTask(position=3, name="conv2d.x86", failures={"build_error": 8}, hint="See the log."),),
)  # fmt: skip
SHARED = bundle.TEXTS.union(bundle.STANDALONE, bundle.BUILD_FILES)
"""What a bundle of the model's library holds."""
FOR_TVM = frozenset(bundle.COMPILED["graph"])
"""What TVM's graph executor loads."""
RECORDS = ['{"input": ["llvm", "dense_nopack.x86"], "result": [[1e-05], 0, 0.1, 1.0]}']


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    folder = tmp_path / "compiled"
    folder.mkdir()
    (folder / "mod.so").write_bytes(b"\x7fELF")
    (folder / "mod.json").write_text('{"nodes": []}')
    (folder / "mod.params").write_bytes(b"\x01params")
    (folder / "libmodel.so").write_bytes(b"\x7fELF alone" + bytes(3_000_000))
    (folder / "tunesmith.h").write_text("int run(void);")
    return folder


@pytest.fixture
def tar(compiled: Path, tmp_path: Path) -> Path:
    bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=MANIFEST, report=REPORT, records=RECORDS)
    return tmp_path / "b.tar"


def rewritten(tar: Path, change: Callable[[tarfile.TarInfo, bytes], list[tuple[tarfile.TarInfo, bytes]]]) -> Path:
    """The bundle with each member replaced by what ``change`` makes of it."""
    path = tar.with_name("changed.tar")
    with tarfile.open(tar) as old, tarfile.open(path, "w") as new:
        for member in old:
            file = old.extractfile(member)
            assert file
            for info, data in change(member, file.read()):
                info.size = len(data) if info.isreg() else 0
                new.addfile(info, io.BytesIO(data))
    return path


def with_member(tar: Path, name: str, **attributes: object) -> Path:
    """The bundle with one more member in front."""
    path = tar.with_name("changed.tar")
    with tarfile.open(tar) as old, tarfile.open(path, "w") as new:
        extra = tarfile.TarInfo(name)
        for attribute, value in attributes.items():
            setattr(extra, attribute, value)
        new.addfile(extra)
        for member in old:
            new.addfile(member, old.extractfile(member))
    return path


def test_a_bundle_comes_back_as_it_was_written(tar: Path, compiled: Path, tmp_path: Path) -> None:
    manifest = bundle.open_bundle(tar, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == SHARED
    for name in bundle.STANDALONE:
        assert (tmp_path / "out" / name).read_bytes() == (compiled / name).read_bytes()
    assert manifest.inputs == MANIFEST.inputs
    assert manifest.toolchain == MANIFEST.toolchain
    assert set(manifest.files) == SHARED - {"manifest.json"}
    assert bundle.read_manifest(tmp_path / "out") == manifest


def test_the_evidence_and_the_records_are_inside(tar: Path, tmp_path: Path) -> None:
    bundle.open_bundle(tar, tmp_path / "out")
    evidence = json.loads((tmp_path / "out" / "evidence.json").read_text())
    assert evidence["benchmark"]["reference"]["samples"] == [1e-3, 1.1e-3, 1.2e-3]
    assert evidence["verification"]["tuned"]["outputs"][0]["max_abs"] == 1e-7
    assert evidence["verification"]["tuned"]["passed"] is True
    assert evidence["published"] == "tuned"
    assert evidence["engines"] == {"tuned": "relay/tvm-0.19.0/llvm-22.1.8"}
    assert evidence["choice"] == ["autotvm leads."]
    assert [(each["name"], each["seconds"], each["verdict"]) for each in evidence["portfolio"]] == [
        ("ansor", 1e-3, "published"),
        ("autotvm", None, "wrong results"),
    ]
    assert (evidence["conditions"]["load"], evidence["conditions"]["noisy"]) == (0.25, True)
    assert evidence["benchmark"]["tuned"].keys() >= {"ci_low", "ci_high"}
    (failed,) = evidence["failed_tasks"]
    assert (failed["name"], failed["failures"]) == ("conv2d.x86", {"build_error": 8})
    assert json.loads((tmp_path / "out" / "records.json").read_text()) == {"tuner": "autotvm", "records": RECORDS}
    readme = (tmp_path / "out" / "README.md").read_text()
    assert REPORT.summary in readme
    assert "| ansor | 1.0000 | 64 | published |\n| autotvm |  | 0 | wrong results |" in readme
    assert "`x` float32[1, 3, 48, 192]" in readme
    assert (
        "On Zen, 2 thread(s), governor performance, 3000 to 3700 MHz, 0.2 other running programs, "
        "a calibration loop varied by 8.0%."
    ) in readme
    ast.parse((tmp_path / "out" / "example.py").read_text())


@pytest.mark.parametrize(
    ("runtime", "variant", "model", "precision", "options", "title"),
    [
        (Runtime.ONNXRUNTIME, None, bundle.PREPARED, "f32", {}, "ONNX Runtime"),
        (
            Runtime.ONNXRUNTIME, Variant.ONNXRUNTIME, bundle.ORIGINAL, "f32", {"enable_cpu_mem_arena": "0"},
            "ONNX Runtime",
        ),
        (Runtime.ONNXRUNTIME, Variant.ONNXRUNTIME, bundle.QUANTIZED, "int8", {}, "ONNX Runtime"),
        (Runtime.OPENVINO, Variant.OPENVINO, bundle.REWRITTEN, "f32", {"INFERENCE_PRECISION_HINT": "f32"}, "OpenVINO"),
        (Runtime.OPENVINO, Variant.OPENVINO, bundle.PREPARED, "bf16", {"INFERENCE_PRECISION_HINT": "bf16"}, "OpenVINO"),
    ],
)  # fmt: skip
def test_a_bundle_that_runs_with_another_runtime_has_the_model_for_it(
    compiled: Path, tar: Path, tmp_path: Path, runtime: Runtime, variant: Variant | None, model: str, precision: str,
    options: dict[str, str], title: str,
) -> None:  # fmt: skip
    other = OtherRuntime(
        name=str(runtime), version="1.31.1", model=model, threads=2, precision=precision, options=options
    )
    report = dataclasses.replace(
        REPORT, runtime=runtime, runtime_variant=variant, runtime_version="1.31.1", runtime_model=model,
        runtime_precision=precision, runtime_options=options,
    )  # fmt: skip
    (tmp_path / "p.onnx").write_bytes(b"a model")
    bundle.write(
        tmp_path / "o.tar", compiled=compiled, model=tmp_path / "p.onnx", report=report,
        manifest=dataclasses.replace(MANIFEST, runtime=other),
    )  # fmt: skip
    opened = bundle.open_bundle(tmp_path / "o.tar", tmp_path / "out")
    assert (opened.runtime, opened.files.keys()) == (other, SHARED - {"manifest.json"} | {model})
    assert (tmp_path / "out" / model).read_bytes() == b"a model"
    evidence = json.loads((tmp_path / "out" / "evidence.json").read_text())
    assert (evidence["runtime"], evidence["published"]) == (runtime, "tuned")
    assert (evidence["runtime_variant"], evidence["runtime_model"]) == (variant or "reference", model)
    assert (evidence["runtime_precision"], evidence["runtime_options"]) == (precision, options)
    readme = readme_of(tmp_path / "out")
    assert f"{title} 1.31.1 was faster than the library. The session uses it, on\n`{model}`" in readme
    assert f"    pip install {runtime}==1.31.1\n" in readme
    assert f"| runtime | `{runtime}==1.31.1` on `{model}` in {precision}" in readme
    assert re.search(rf"^\* `{model}`: the .*model", readme, re.MULTILINE)
    assert all(f"`{name}={value}`" in readme for name, value in options.items())
    assert 'InferenceSession(".").run' in readme
    lacking = rewritten(tmp_path / "o.tar", lambda info, data: [] if info.name == model else [(info, data)])
    with pytest.raises(errors.InvalidBundle, match=f"lacks {model}"):
        bundle.open_bundle(lacking, tmp_path / "lacking")
    assert bundle.open_bundle(tar, tmp_path / "without").runtime is None


def test_the_same_content_gives_the_same_bytes(compiled: Path, tar: Path, tmp_path: Path) -> None:
    time.sleep(0.01)
    for path in compiled.iterdir():
        path.touch()
        path.chmod(0o600)
    bundle.write(tmp_path / "again.tar", compiled=compiled, manifest=MANIFEST, report=REPORT, records=RECORDS)
    assert (tmp_path / "again.tar").read_bytes() == tar.read_bytes()


def test_nobodys_name_or_time_is_in_a_bundle(tar: Path) -> None:
    with tarfile.open(tar) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == sorted(SHARED)
    assert {(member.uid, member.uname, member.mtime) for member in members} == {(0, "", 0)}


def test_a_missing_compiled_file_is_told(compiled: Path, tmp_path: Path) -> None:
    (compiled / "mod.params").unlink()
    facts = dataclasses.replace(MANIFEST, format="tvm")
    with pytest.raises(FileNotFoundError):
        bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=facts, report=REPORT)


@pytest.mark.parametrize("name", sorted(SHARED))
def test_a_changed_file_is_noticed(tar: Path, tmp_path: Path, name: str) -> None:
    changed = rewritten(tar, lambda info, data: [(info, data[:-2] + b"?" + data[-1:] if info.name == name else data)])
    with pytest.raises(errors.InvalidBundle, match="manifest"):
        bundle.open_bundle(changed, tmp_path / "out")


@pytest.mark.parametrize("name", sorted(SHARED))
def test_a_missing_file_is_noticed(tar: Path, tmp_path: Path, name: str) -> None:
    changed = rewritten(tar, lambda info, data: [] if info.name == name else [(info, data)])
    with pytest.raises(errors.InvalidBundle, match=name):
        bundle.open_bundle(changed, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("../evil", {}),
        ("/evil", {}),
        ("sub/mod.so", {}),
        ("./mod.so", {}),
        ("stranger.txt", {}),
        ("libmodel.so", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
        ("libmodel.so", {"type": tarfile.LNKTYPE, "linkname": "tunesmith.h"}),
        ("libmodel.so", {"type": tarfile.DIRTYPE}),
        ("libmodel.so", {"type": tarfile.FIFOTYPE}),
        ("libmodel.so", {"type": tarfile.CHRTYPE}),
        ("libmodel.so", {}),
    ],
)
def test_tricks_are_refused(tar: Path, tmp_path: Path, name: str, attributes: dict[str, object]) -> None:
    with pytest.raises(errors.InvalidBundle):
        bundle.open_bundle(with_member(tar, name, **attributes), tmp_path / "in" / "out")
    assert not (tmp_path / "in" / "evil").exists()
    assert not Path("/evil").exists()


def test_a_link_that_waits_in_the_folder_is_not_followed(tar: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "out" / "libmodel.so").symlink_to(tmp_path / "victim")
    bundle.open_bundle(tar, tmp_path / "out")
    assert (tmp_path / "victim").read_text() == "untouched"


def test_a_size_beyond_all_measure_is_refused(tar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_BYTES", 1_000_000)
    with pytest.raises(errors.InvalidBundle, match="too large"):
        bundle.open_bundle(tar, tmp_path / "out")


@pytest.mark.parametrize("content", [b"", b"not a tar at all" * 100, bytes(10240)], ids=["empty", "text", "zeros"])
def test_what_is_no_tar_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b.tar").write_bytes(content)
    with pytest.raises(errors.InvalidBundle):
        bundle.open_bundle(tmp_path / "b.tar", tmp_path / "out")
    with pytest.raises(errors.InvalidBundle):
        bundle.open_bundle(tmp_path / "missing.tar", tmp_path / "out")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_bundle_is_refused(tar: Path, tmp_path: Path, share: float) -> None:
    data = tar.read_bytes()
    tar.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(errors.InvalidBundle):
        bundle.open_bundle(tar, tmp_path / "out")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format_version": 2}', '{"format_version": 1}', "[" * 100_000])
def test_a_manifest_that_makes_no_sense_is_refused(tar: Path, tmp_path: Path, text: str) -> None:
    changed = rewritten(tar, lambda info, data: [(info, text.encode() if info.name == "manifest.json" else data)])
    with pytest.raises(errors.InvalidBundle):
        bundle.open_bundle(changed, tmp_path / "out")


def test_facts_that_a_later_release_adds_are_left_out(tar: Path, tmp_path: Path) -> None:
    def add(info: tarfile.TarInfo, data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        if info.name == "manifest.json":
            data = json.dumps({**json.loads(data), "something_new": 1}).encode()
        return [(info, data)]

    assert bundle.open_bundle(rewritten(tar, add), tmp_path / "out").model_name == "ppocr-cls"


def with_manifest(tar: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The bundle with facts of its manifest changed."""

    def changed(info: tarfile.TarInfo, data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        if info.name == "manifest.json":
            facts = json.loads(data)
            change(facts)
            data = json.dumps(facts).encode()
        return [(info, data)]

    return rewritten(tar, changed)


def test_bundles_of_earlier_releases_open(compiled: Path, tmp_path: Path) -> None:
    def forget(facts: dict[str, Any]) -> None:
        for name in ("executor", "format", "tuner"):
            del facts[name]

    tar = tmp_path / "b.tar"
    # They had the files for TVM in every format.
    bundle.write(tar, compiled=compiled, manifest=MANIFEST, report=REPORT, ran_with_tvm=True)
    manifest = bundle.open_bundle(with_manifest(tar, forget), tmp_path / "out")
    assert manifest.files.keys() > FOR_TVM
    assert (manifest.executor, manifest.format, manifest.tuner) == ("graph", "shared", "autotvm")


def test_a_bundle_says_what_it_needs_tvm_for(tar: Path, compiled: Path, tmp_path: Path) -> None:
    assert bundle.open_bundle(tar, tmp_path / "alone").needs_tvm == ""
    assert "InferenceSession(\"libmodel.so\").run(None, {'x': …})" in readme_of(tmp_path / "alone")
    for name in bundle.STANDALONE:
        (compiled / name).unlink()
    (compiled / bundle.NEEDS_TVM).write_text("functions of TVM's runtime: tvm.contrib.sort.topk\n")
    bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=MANIFEST, report=REPORT)
    manifest = bundle.open_bundle(tmp_path / "b.tar", tmp_path / "out")
    assert manifest.needs_tvm == "functions of TVM's runtime: tvm.contrib.sort.topk"
    assert manifest.files.keys() == FOR_TVM | bundle.TEXTS - {"manifest.json"}
    readme = readme_of(tmp_path / "out")
    assert "This bundle needs TVM for functions of TVM's runtime: tvm.contrib.sort.topk." in readme
    assert "InferenceSession" not in readme


def test_a_bundle_for_static_programs_has_the_archive_and_its_header(compiled: Path, tmp_path: Path) -> None:
    facts = dataclasses.replace(MANIFEST, format="static")
    (compiled / "libmodel.h").write_bytes(b"compiled")
    with pytest.raises(FileNotFoundError, match=r"libmodel\.a"):
        bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=facts, report=REPORT)
    (compiled / "libmodel.a").write_bytes(b"compiled")
    written = bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=facts, report=REPORT)
    assert bundle.open_bundle(tmp_path / "b.tar", tmp_path / "out") == written
    assert "* `libmodel.a`: the model as a static library" in readme_of(tmp_path / "out")


def test_a_bundle_for_onnx_runtime_says_how_to_use_it(compiled: Path, tmp_path: Path) -> None:
    for name in (*bundle.STANDALONE, "model.onnx", "libtunesmith_ort.so"):
        (compiled / name).write_bytes(b"compiled")
    facts = dataclasses.replace(MANIFEST, format="onnx")
    written = bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=facts, report=REPORT)
    assert {"model.onnx", "libtunesmith_ort.so"} <= written.files.keys()
    assert bundle.open_bundle(tmp_path / "b.tar", tmp_path / "out") == written
    assert 'options.register_custom_ops_library("libtunesmith_ort.so")' in readme_of(tmp_path / "out")


def readme_of(folder: Path) -> str:
    return (folder / "README.md").read_text()


@pytest.mark.parametrize("form", ["shared", "wheel", "onnx", "static", "tvm", "object", "system-lib"])
def test_beside_a_library_only_formats_for_tvm_have_what_that_loads(compiled: Path, tmp_path: Path, form: str) -> None:
    for name in bundle.ADDED[form]:
        (compiled / name).write_bytes(b"compiled")
    facts = dataclasses.replace(MANIFEST, format=form)
    for_tvm = form in ("tvm", "object", "system-lib")
    for ran_with_tvm in (False, True):
        path, out = tmp_path / f"{ran_with_tvm}.tar", tmp_path / str(ran_with_tvm)
        written = bundle.write(path, compiled=compiled, manifest=facts, report=REPORT, ran_with_tvm=ran_with_tvm)
        assert bundle.open_bundle(path, out) == written
        assert written.files.keys() >= {*bundle.STANDALONE, *bundle.ADDED[form]}
        expected = FOR_TVM if for_tvm or ran_with_tvm else set()
        assert written.files.keys() & FOR_TVM == expected
        assert ("## Run it with TVM" in readme_of(out)) == bool(expected)
        example = (out / "example.py").read_text()
        assert ("import tvm" in example, "InferenceSession" in example) == (bool(expected), not expected)
        ast.parse(example)


@pytest.mark.contract
def test_without_its_packages_the_example_of_a_library_says_what_to_install(tar: Path, tmp_path: Path) -> None:
    bundle.open_bundle(tar, tmp_path / "out")
    # Without site-packages there is no numpy.
    command = [sys.executable, "-I", "-S", tmp_path / "out" / "example.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    needs = "this program needs numpy and tunesmith.runtime, for example: pip install 'tunesmith[run]'"
    assert (done.returncode, done.stderr) == (1, f"No module named 'numpy': {needs}\n")


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("executor", ["graph", "vm"])
@pytest.mark.parametrize(
    ("form", "added"), [("shared", None), ("tvm", None), ("object", "mod.tar"), ("system-lib", "mod.a")]
)
def test_a_bundle_holds_what_its_executor_and_format_need(
    compiled: Path, tmp_path: Path, executor: str, form: str, added: str | None, linked: bool
) -> None:
    if added:
        (compiled / added).write_bytes(b"objects")
    if form == "shared":
        (compiled / bundle.MODEL).unlink()
    if not linked:
        (compiled / "mod.so").unlink()
    facts = dataclasses.replace(MANIFEST, executor=executor, format=form)
    if form in ("shared", "tvm") and not linked:
        with pytest.raises(FileNotFoundError):
            bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=facts, report=REPORT)
        return
    written = bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=facts, report=REPORT)
    params = {"mod.params"} if executor == "graph" else set()
    binaries = {"mod.json"} | params | ({"mod.so"} if linked else set()) | ({added} if added else set())
    assert {name for name in written.files if name.startswith("mod.")} == binaries
    assert bundle.open_bundle(tmp_path / "b.tar", tmp_path / "out") == written
    readme = (tmp_path / "out" / "README.md").read_text()
    assert all(f"* `{name}`: " in readme for name in binaries)
    example = (tmp_path / "out" / "example.py").read_text()
    assert ("VirtualMachine" in example) == (executor == "vm")
    ast.parse(example)


@pytest.mark.parametrize("facts", [{"executor": "gpu"}, {"format": "zip"}, {"format": "object"}])
def test_a_manifest_that_does_not_fit_its_files_is_refused(tar: Path, tmp_path: Path, facts: dict[str, str]) -> None:
    changed = with_manifest(tar, lambda known: known.update(facts))
    with pytest.raises(errors.InvalidBundle):
        bundle.open_bundle(changed, tmp_path / "out")


def test_a_file_that_the_manifest_does_not_describe_is_refused(tar: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidBundle, match=r"mod\.tar"):
        bundle.open_bundle(with_member(tar, "mod.tar"), tmp_path / "out")


@pytest.mark.parametrize(
    ("engine", "tuner", "named"),
    [("relay", None, "autotvm"), ("relax", None, "metaschedule"), ("relay", "ansor", "ansor"), ("relay", "", "")],
)
def test_the_records_name_their_tuner(
    compiled: Path, tmp_path: Path, engine: str, tuner: str | None, named: str
) -> None:
    made_by = {**MANIFEST.toolchain, "engine": engine}
    facts = dataclasses.replace(MANIFEST, tuner=tuner, executor="", toolchain=made_by)
    assert facts.executor == {"relay": "graph", "relax": "vm"}[engine]
    bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=facts, report=REPORT, records=RECORDS)
    bundle.open_bundle(tmp_path / "b.tar", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "records.json").read_text())["tuner"] == named


def test_what_runs_a_bundle_needs_no_plugins(compiled: Path, tmp_path: Path) -> None:
    toolchain = {**MANIFEST.toolchain, "tvm": "0.19.0+plugins.1f2e3d4c"}
    facts = dataclasses.replace(MANIFEST, toolchain=toolchain, format="tvm")
    written = bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=facts, report=REPORT)
    bundle.open_bundle(tmp_path / "b.tar", tmp_path / "out")
    assert written.toolchain["tvm"] == "0.19.0+plugins.1f2e3d4c"
    assert "plain TVM 0.19.0 and numpy" in (tmp_path / "out" / "example.py").read_text()
    assert "It needs numpy and TVM 0.19.0." in (tmp_path / "out" / "README.md").read_text()


def test_a_bundle_that_nothing_was_run_of_says_so(compiled: Path, tmp_path: Path) -> None:
    unproven = dataclasses.replace(REPORT, timings={}, verifications={})
    bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=MANIFEST, report=unproven)
    bundle.open_bundle(tmp_path / "b.tar", tmp_path / "out")
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "Nothing: it was built but not run" in readme
    assert "| measured on | nothing |" in readme
    assert "| variant | mean |" not in readme


def pins(engine: str) -> set[str]:
    return set(catalogue.get(engine).requirements.with_suffix(".in").read_text().split())


def test_what_to_install_is_what_the_engines_have() -> None:
    for release, engine in (("0.19.0", "relay"), ("0.27.0.post1", "relax")):
        assert set(bundle_texts.WHEELS[release].split()) <= pins(engine)
    assert len(bundle_texts.WHEELS) == 2


@pytest.mark.contract
@pytest.mark.parametrize(
    ("engine", "tvm", "line"),
    [
        ("relay", "0.19.0", f"pip install numpy {bundle_texts.WHEELS['0.19.0']}"),
        ("relay", "0.19.0+plugins.1f2e3d4c", f"pip install numpy {bundle_texts.WHEELS['0.19.0']}"),
        ("relax", "0.27.0.post1", "pip install numpy apache-tvm==0.27.0.post1"),
        ("relax", "0.28.dev0", None),
    ],
)
def test_without_tvm_the_example_says_what_to_install(tmp_path: Path, engine: str, tvm: str, line: str | None) -> None:
    toolchain = {"engine": engine, "tvm": tvm, "llvm": "22"}
    manifest = dataclasses.replace(MANIFEST, toolchain=toolchain, executor="")
    program = bundle_texts.example(manifest, ["mod.so"])
    ast.parse(program)
    (tmp_path / "example.py").write_text(program)
    (tmp_path / "manifest.json").write_text('{"threads": 1}')
    # Without site-packages there is neither numpy nor TVM.
    command = [sys.executable, "-I", "-S", tmp_path / "example.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    release = tvm.partition("+")[0]
    told = f"No module named 'numpy': this program needs numpy and TVM {release}"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"{told}, for example: {line}\n" if line else f"{told}\n")
    assert ("pip install" in bundle_texts.readme(manifest, REPORT, [])) == bool(line)
    assert not line or f"    {line}\n    python example.py\n" in bundle_texts.readme(manifest, REPORT, [])


def test_a_readme_tells_the_limits_and_what_was_fed() -> None:
    error = dataclasses.replace(ERROR, max_rel=0.04, rtol=0.1, top1=0.9375, least_top1=0.9)
    checked = Verification(
        variant=Variant.TUNED, seeds=tuple(range(16)), outputs=(error,), precision="int8", inputs={"x": "image"}
    )
    broken = dataclasses.replace(
        checked, variant=Variant.UNTUNED, outputs=(dataclasses.replace(error, not_finite=2, passed=False),)
    )
    report = dataclasses.replace(REPORT, verifications={Variant.TUNED: checked, Variant.UNTUNED: broken})
    text = bundle_texts.readme(MANIFEST, report, ["mod.so"])
    assert "on 16 seeded inputs (`x` image)" in text
    assert "| TVM, tuned | int8 | `y` | 1e-07 | 0.04 | 1e-05 + 0.1 × | 93.8% (at least 90.0%) | passed |" in text
    assert "FAILED: 2 not finite" in text
    nothing = dataclasses.replace(checked, outputs=(error, dataclasses.replace(error, output="z", not_compared=True)))
    text = bundle_texts.readme(MANIFEST, dataclasses.replace(report, verifications={Variant.TUNED: nothing}), [])
    assert "(at least 90.0%) | not compared: no finite number in the reference |" in text
    assert bundle.evidence(report)["verification"]["tuned"]["outputs"][0]["top1"] == 0.9375


@pytest.mark.parametrize(
    ("megahertz", "told"), [((3000.0, 3700.0), ", 3000 to 3700 MHz,"), ((2595.9, 2596.2), ", 2596 MHz,")]
)
def test_one_frequency_is_no_range(megahertz: tuple[float, float], told: str) -> None:
    assert REPORT.conditions is not None
    conditions = dataclasses.replace(REPORT.conditions, megahertz=megahertz)
    report = dataclasses.replace(REPORT, conditions=conditions)
    assert told in bundle_texts.readme(MANIFEST, report, [])


def test_a_library_returns_an_error_where_other_files_end_the_process() -> None:
    told = " ".join(bundle_texts.readme(MANIFEST, REPORT, ["libmodel.so", "mod.so", "mod.json"]).split())
    assert "lacks its instructions, `libmodel.so` returns an error that names them, and other files end" in told
    assert "pip install '.[run]'" in told
    told = " ".join(bundle_texts.readme(MANIFEST, REPORT, ["mod.so"]).split())
    assert "lacks its instructions, they end the process:" in told
