from __future__ import annotations

import json
import platform
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domain.models import TensorSpec
from domain.sizes import Size
from tests.support.hostile.tars import hostile
from tests.support.tuner.fakes import FakeEngine
from tests.support.tunesmith.commands import run
from tests.unit.tuner.test_bundle import MANIFEST, REPORT
from tuner.engines.protocol.serving import EngineFailure
from tuner.results import bundle
from tuner.sandbox.limits import Limits
from tunesmith.cli import arrays, local
from tunesmith.cli.local import Published, compared, published

HERE = {"device_key": "x86_64/acme/avx2/t2", "threads": 2, "same_device": True}
SAID = Published(median=1e-3, device="Acme 9000", threads=2, same_device=True, noisy=False)
FIRST = "Published: 1.000 ms on a device like this one (Acme 9000, 2 threads)."


def test_a_bundle_for_another_machine_is_not_tried(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    for name in ("mod.so", "mod.json", "mod.params"):
        (compiled / name).write_bytes(b"{}")
    for triple, code in (("aarch64-linux-gnu", "invalid_bundle"), ("x86_64-linux-gnu", "engine_not_installed")):
        manifest = replace(MANIFEST, target=f"llvm -mtriple={triple} -mcpu=generic")
        bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=manifest, report=REPORT)
        monkeypatch.delenv("TUNESMITH_ENGINE_RELAY_PYTHON", raising=False)
        status, _, err = run(capsys, "run", tmp_path / "b.tar")
        assert (status, f"error[{code}]" in err) == ({"invalid_bundle": 5}.get(code, 3), True)


@pytest.mark.parametrize("name", hostile())
def test_a_hostile_archive_is_no_bundle(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    (tmp_path / "b.tar").write_bytes(hostile()[name])
    status, _, err = run(capsys, "run", tmp_path / "b.tar")
    assert (status, err.partition(":")[0]) == (5, "error[invalid_bundle]")
    assert "\nhint: " in err


def test_inputs_that_are_no_arrays(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(b"\x08\x08 no archive")
    status, _, err = run(capsys, "run", model, "--inputs", model)
    assert (status, err.splitlines()[0]) == (5, f"error[invalid_inputs]: {model} is not an .npz file")
    assert "hint: Pass an .npz file" in err


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Limits]:
    """Those of the process that runs ``b.tar``, which has too little memory."""
    given: list[Limits] = []

    def refuse(*_: object) -> Any:
        raise EngineFailure("out_of_memory", "MemoryError: Unable to allocate 8.00 GiB")

    def start(*_: object, limits: Limits, **_named: object) -> Any:
        given.append(limits)
        return nullcontext(FakeEngine({"run": refuse}))

    monkeypatch.setattr("tuner.host.environments.interpreter", lambda *_: Path("python"))
    monkeypatch.setattr("tuner.host.session.EngineSession.start", start)
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    for name in ("mod.so", "mod.json", "mod.params"):
        (compiled / name).write_bytes(bytes(10_000))
    bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=MANIFEST, report=REPORT)
    return given


def test_memory_follows_from_the_manifest(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: list[Limits]
) -> None:
    needed = 4 * 2**30 + 8 * (4 * (3 * 48 * 192 + 2) + 30_000)
    for host, least, most in ((2**40, needed, needed + 2**20), (2**32, 3 * 2**30, 3 * 2**30)):
        monkeypatch.setattr("tuner.sandbox.limits.memory_of_host", lambda host=host: host)
        status, _, err = run(capsys, "run", tmp_path / "b.tar")
        assert (status, err.partition(":")[0]) == (5, "error[memory_limit]")
        assert least <= (limits[-1].data_bytes or 0) <= most
    _, _, err = run(capsys, "run", tmp_path / "b.tar", "--memory-mb", 1500)
    assert limits[-1].data_bytes == 1500 * 2**20
    assert "the bundle needs more than 1500 MiB of memory\nhint: Allow more with --memory-mb" in err
    assert [Path(path).name for path in limits[-1].writable] == ["written"]


def test_constant_inputs_of_several_sizes_have_the_shape_of_the_first(tmp_path: Path) -> None:
    several = tuple(
        Size(name=f"batch={batch}", values={"batch": batch}, input_shapes={"x": (batch, 3)}, share=0.5)
        for batch in (2, 8)
    )
    inputs = (
        TensorSpec(name="x", dtype="float32", shape=("batch", 3)),
        TensorSpec(name="scale", dtype="float32", shape=(1,)),
    )
    local._filled(tmp_path, replace(MANIFEST, inputs=inputs, sizes=several), "ones")
    found = {name: arrays.read(tmp_path / "inputs.npz", name).shape for name in ("x", "scale")}
    assert found == {"x": (2, 3), "scale": (1,)}


def test_the_published_median_is_the_evidences(tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    path.write_text(json.dumps(bundle.evidence(REPORT)))
    found = published(path, **HERE)
    assert found is not None
    assert found.median == REPORT.timings[REPORT.published].median
    assert (found.threads, found.same_device) == (2, True)
    path.write_text(json.dumps(bundle.evidence(replace(REPORT, timings={}))))
    assert published(path, **HERE) is None, "nothing was measured"


@pytest.mark.parametrize(
    "evidence",
    [
        "", "[" * 100_000, "[]", "null", "{}", '{"published": "tuned"}', '{"published": [], "benchmark": {}}',
        '{"published": "tuned", "benchmark": {"tuned": {"median": "soon"}}}',
        '{"published": "tuned", "benchmark": {"tuned": {"median": 0}}}',
        '{"published": "tuned", "benchmark": {"tuned": {"median": NaN}}}',
        '{"published": "tuned", "benchmark": {"tuned": {"median": 1e999}}}',
        f'{{"published": "tuned", "benchmark": {{"tuned": {{"median": 1{"0" * 400}}}}}}}',
        '{"published": "tuned", "benchmark": {"tuned": {"median": 1}}, "conditions": 7}',
    ],
)  # fmt: skip
def test_evidence_from_anywhere_may_say_anything(evidence: str, tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    path.write_text(evidence)
    assert published(path, **HERE) is None


def test_evidence_without_conditions_is_of_the_manifests_device(tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    path.write_text('{"published": "tuned", "benchmark": {"tuned": {"median": 0.001}}, "conditions": null}')
    assert published(path, **HERE) == replace(SAID, device="x86_64/acme/avx2/t2")


def test_a_device_is_shown_as_text(tmp_path: Path) -> None:
    said = {"published": "tuned", "benchmark": {"tuned": {"median": 0.001}}, "conditions": {"device": "\x1b[2JAcme"}}
    path = tmp_path / "evidence.json"
    path.write_text(json.dumps(said))
    assert (found := published(path, **HERE))
    assert found.device == "[2JAcme"


@pytest.mark.parametrize("samples", [[1e-3] * 3, [0.95e-3] * 3, [1.05e-3] * 3])
def test_times_that_agree_need_no_explanation(samples: list[float]) -> None:
    assert compared(SAID, samples, threads=2) == [FIRST]


@pytest.mark.parametrize(
    ("changes", "samples", "threads", "expected"),
    [
        ({}, [2e-3] * 3, 1, "2.00 times as long: it ran with 1 thread."),
        ({"same_device": False}, [2e-3] * 3, 2, "2.00 times as long: the devices differ."),
        ({"noisy": True}, [1e-3, 2e-3, 3e-3], 2, "2.00 times as long: the samples vary as if other"),
        ({"noisy": True}, [0.5e-3] * 3, 2, "0.50 times as long: the machine was busy when it was published"),
        ({}, [1.5e-3] * 3, 2, "1.50 times as long: other programs ran during one of the two"),
    ],
)
def test_times_that_differ_are_explained(
    changes: dict[str, Any], samples: list[float], threads: int, expected: str
) -> None:
    _, sentence = compared(replace(SAID, **changes), samples, threads)
    assert sentence.startswith(f"Here it took {expected}")


def test_another_device_is_called_so() -> None:
    (sentence,) = compared(replace(SAID, same_device=False, threads=1), [1e-3], threads=1)
    assert sentence == "Published: 1.000 ms on another device (Acme 9000, 1 thread)."
