"""What is refused before any library is loaded: ``tunesmith.runtime.loading`` needs no numpy."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import types
from pathlib import Path

import pytest

from tests.support.hostile.tars import packed


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The module alone: its package imports numpy, which the service's environment lacks."""
    import tunesmith

    package = types.ModuleType("tunesmith.runtime")
    package.__path__ = [str(Path(tunesmith.__file__).parent / "runtime")]
    monkeypatch.setitem(sys.modules, "tunesmith.runtime", package)
    found = importlib.util.find_spec("tunesmith.runtime.loading")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, "tunesmith.runtime.loading", module)
    found.loader.exec_module(module)
    return module


def tar(path: Path, **files: bytes) -> Path:
    path.write_bytes(packed({name.replace("_", "."): content for name, content in files.items()}))
    return path


def manifest(**files: str) -> bytes:
    named = {name.replace("_", "."): digest for name, digest in files.items()}
    return json.dumps({"files": named, "needs_tvm": "control flow"}).encode()


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "it has no manifest.json"),
        ({"manifest_json": b"{"}, "its manifest.json cannot be read"),
        ({"manifest_json": b"[]"}, "its manifest.json cannot be read"),
        ({"manifest_json": b'{"files": 3}'}, "its manifest.json cannot be read"),
        ({"manifest_json": b"[" * 100_000}, "its manifest.json cannot be read"),
        ({"manifest_json": manifest(mod_so="00")}, r"has no libmodel\.so: it needs TVM for control flow; run it as"),
        ({"manifest_json": b'{"files": {}}'}, "made by an older release"),
        ({"manifest_json": manifest(libmodel_so="00")}, r"lacks libmodel\.so"),
        ({"manifest_json": manifest(libmodel_so="00"), "libmodel_so": b"\x7fELF"}, r"the sha256 of libmodel\.so is"),
        (
            {"manifest_json": manifest(libmodel_so=hashlib.sha256(b"no").hexdigest()), "libmodel_so": b"no"},
            "cannot load",
        ),
    ],
)
def test_damaged_bundles_are_refused(
    loading: types.ModuleType, tmp_path: Path, files: dict[str, bytes], told: str
) -> None:
    with pytest.raises(loading.LoadError, match=told):
        loading.load(tar(tmp_path / "b.tar", **files))


RUNTIME = {
    "name": "onnxruntime", "version": "1.31.1", "model": "prepared.onnx", "threads": 2,
    "options": {"enable_cpu_mem_arena": "0"},
}  # fmt: skip
SPEC = {"name": "x", "dtype": "float32", "shape": [1, 4]}


def with_runtime(**changes: object) -> bytes:
    """The manifest of a bundle that runs with ONNX Runtime; its model is ``a model``."""
    digest = hashlib.sha256(b"a model").hexdigest()
    return json.dumps(
        {
            "files": {"prepared.onnx": digest}, "runtime": RUNTIME, "inputs": [SPEC], "outputs": [SPEC],
            "model_digest": "ab", "target": "llvm", **changes,
        }
    ).encode()  # fmt: skip


def test_the_model_for_onnx_runtime_is_handed_out_once_its_digest_is_right(
    loading: types.ModuleType, tmp_path: Path
) -> None:
    whole = tar(tmp_path / "b.tar", manifest_json=with_runtime(), prepared_onnx=b"a model")
    facts = loading.facts(whole)
    assert (facts.name, facts.version, facts.threads) == ("onnxruntime", "1.31.1", 2)
    assert (facts.inputs, facts.options) == ([("x", "float32", [1, 4])], {"enable_cpu_mem_arena": "0"})
    without = {name: value for name, value in RUNTIME.items() if name != "options"}
    old = tar(tmp_path / "old.tar", manifest_json=with_runtime(runtime=without), prepared_onnx=b"a model")
    assert loading.facts(old).options == {}
    (tmp_path / "manifest.json").write_bytes(with_runtime())
    (tmp_path / "prepared.onnx").write_bytes(b"a model")
    digest = hashlib.sha256(whole.read_bytes()).hexdigest()
    for path, pinned in ((whole, None), (whole, digest), (tmp_path, None)):
        with loading.model(path, pinned, runtime="onnxruntime") as (found, file):
            assert (found, file.read_bytes()) == (facts, b"a model")
    damaged = tar(tmp_path / "d.tar", manifest_json=with_runtime(), prepared_onnx=b"another")
    lacking = tar(tmp_path / "l.tar", manifest_json=with_runtime())
    for path, pinned, told in (
        (whole, "0" * 64, "was changed or damaged"),
        (damaged, None, r"the sha256 of prepared\.onnx is"),
        (lacking, None, r"lacks prepared\.onnx"),
        (tmp_path, digest, "a folder, which has no digest"),
    ):
        with pytest.raises(loading.LoadError, match=told), loading.model(path, pinned, runtime="onnxruntime"):
            raise AssertionError(path)
    with (
        pytest.raises(loading.LoadError, match="no model for openvino: it is for onnxruntime"),
        loading.model(whole, runtime="openvino"),
    ):
        raise AssertionError


def test_sizes_of_outputs_may_depend_on_the_input(loading: types.ModuleType, tmp_path: Path) -> None:
    boxes = {"name": "boxes", "dtype": "float32", "shape": ["count", None, 4]}
    found = loading.facts(
        tar(tmp_path / "b.tar", manifest_json=with_runtime(outputs=[boxes]), prepared_onnx=b"a model")
    )
    assert found.outputs == [("boxes", "float32", ["count", None, 4])]


@pytest.mark.parametrize(
    "document",
    [
        with_runtime(runtime=None),
        with_runtime(runtime={**RUNTIME, "name": "of a later release"}),
        with_runtime(runtime={**RUNTIME, "model": "../prepared.onnx"}),
        with_runtime(runtime={"name": "onnxruntime"}),
        with_runtime(runtime={**RUNTIME, "options": ["arena"]}),
        with_runtime(inputs=3),
        with_runtime(files={}),
        b"[]",
        b"{",
    ],
)
def test_other_bundles_have_no_model_for_onnx_runtime(
    loading: types.ModuleType, tmp_path: Path, document: bytes
) -> None:
    path = tar(tmp_path / "b.tar", manifest_json=document, prepared_onnx=b"a model")
    assert loading.facts(path) is None
    with (
        pytest.raises(loading.LoadError, match="has no model for onnxruntime: its"),
        loading.model(path, runtime="onnxruntime"),
    ):
        raise AssertionError
    (tmp_path / "libmodel.so").write_bytes(b"\x7fELF")
    assert [loading.facts(other) for other in (tmp_path / "libmodel.so", tmp_path / "nothing", tmp_path)] == [None] * 3


def test_other_files_are_refused(loading: types.ModuleType, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a picture of a bundle" * 100)
    with pytest.raises(loading.LoadError, match="neither a bundle nor a library"):
        loading.load(tmp_path / "text")
    with pytest.raises(loading.LoadError, match="No such file"):
        loading.load(tmp_path / "nothing")
    with pytest.raises(loading.LoadError, match=r"manifest\.json"):
        loading.load(tmp_path)
    (tmp_path / "libmodel.so").write_bytes(b"\x7fELF")
    with pytest.raises(loading.LoadError, match="file too short"):
        loading.load(tmp_path / "libmodel.so")


def test_a_pinned_digest_is_checked_first(loading: types.ModuleType, tmp_path: Path) -> None:
    path = tar(tmp_path / "b.tar", manifest_json=manifest(libmodel_so="00"))
    with pytest.raises(loading.LoadError, match="it was changed or damaged"):
        loading.load(path, digest="0" * 64)
    with pytest.raises(loading.LoadError, match=r"lacks libmodel\.so"):
        loading.load(path, digest="sha256:" + hashlib.sha256(path.read_bytes()).hexdigest().upper())
    with pytest.raises(loading.LoadError, match="a folder, which has no digest"):
        loading.load(tmp_path, digest="00")
