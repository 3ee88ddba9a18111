from __future__ import annotations

from typing import Any

from bench import outcomes

REPORT: dict[str, Any] = {
    "published": "untuned",
    "precision": "int8",
    "runtime": "tvm",
    "runtime_variant": None,
    "runtime_precision": "f32",
    "timings": {"reference": {"median": 0.02}, "untuned": {"median": 0.005}, "tuned": {"median": 0.006}},
    "choice": ["autotvm leads.", "For int8, the model was quantized with 50 rows of the data set: 53 Conv."],
}
FAILED: dict[str, Any] = {"passes": False, "said": "accuracy_not_met: top-1 agreement 90 %", "ms": None, "vs_ort": None}


def test_the_published_build_is_compared_with_onnx_runtime() -> None:
    told = outcomes.of_report(REPORT)
    assert (told["passes"], told["said"], told["published"]) == (True, REPORT["choice"][1], "tvm int8")
    assert (told["ms"], told["vs_ort"], told["compiled_ms"], told["compiled_vs_ort"]) == (5.0, 4.0, 5.0, 4.0)


def test_a_faster_runtime_is_told_beside_the_compiled_build() -> None:
    timings = {**REPORT["timings"], "openvino": {"median": 0.0025}}
    faster = {"runtime": "openvino", "runtime_variant": "openvino", "runtime_precision": "bf16", "timings": timings}
    told = outcomes.of_report({**REPORT, **faster})
    assert told["published"] == "openvino bf16"
    assert (told["ms"], told["vs_ort"], told["compiled_ms"], told["compiled_vs_ort"]) == (2.5, 8.0, 5.0, 4.0)


def test_a_report_without_times_has_no_ratio() -> None:
    told = outcomes.of_report({**REPORT, "published": "tuned", "timings": {}, "choice": []})
    assert (told["passes"], told["said"]) == (True, "")
    assert (told["ms"], told["vs_ort"], told["compiled_ms"], told["compiled_vs_ort"]) == (None, None, None, None)


def test_models_that_pass_and_are_faster_are_counted() -> None:
    f32, int8 = ({"passes": True, "said": "", "ms": ms, "vs_ort": 20 / ms} for ms in (10.0, 5.0))
    row = {"model": "opennsfw", "f32": f32, "data": {"bf16": f32, "int8": int8}, "seeds": {"bf16": f32, "int8": FAILED}}
    found = outcomes.summary([row, {"model": "magika", "reason": "ValueError: no rows"}])
    assert found["int8 by data"] == {"models": 1, "pass": 1, "faster": 1}
    assert found["bf16 by data"] == {"models": 1, "pass": 1, "faster": 0}
    assert found["int8 by seeds"] == {"models": 1, "pass": 0, "faster": 0}
