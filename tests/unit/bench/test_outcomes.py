from __future__ import annotations

from typing import Any

from bench import outcomes

REPORT = {
    "published": "untuned",
    "timings": {"reference": {"median": 0.02}, "untuned": {"median": 0.005}, "tuned": {"median": 0.006}},
    "choice": ["autotvm leads.", "For int8, the model was quantized with 50 rows of the data set: 53 Conv."],
}
FAILED: dict[str, Any] = {"passes": False, "said": "accuracy_not_met: top-1 agreement 90 %", "ms": None, "vs_ort": None}


def test_the_published_build_is_compared_with_onnx_runtime() -> None:
    assert outcomes.of_report(REPORT) == {"passes": True, "said": REPORT["choice"][1], "ms": 5.0, "vs_ort": 4.0}


def test_a_report_without_times_has_no_ratio() -> None:
    told = outcomes.of_report({"published": "tuned", "timings": {}, "choice": []})
    assert told == {"passes": True, "said": "", "ms": None, "vs_ort": None}


def test_models_that_pass_and_are_faster_are_counted() -> None:
    f32, int8 = ({"passes": True, "said": "", "ms": ms, "vs_ort": 20 / ms} for ms in (10.0, 5.0))
    row = {"model": "opennsfw", "f32": f32, "data": {"bf16": f32, "int8": int8}, "seeds": {"bf16": f32, "int8": FAILED}}
    found = outcomes.summary([row, {"model": "magika", "reason": "ValueError: no rows"}])
    assert found["int8 by data"] == {"models": 1, "pass": 1, "faster": 1}
    assert found["bf16 by data"] == {"models": 1, "pass": 1, "faster": 0}
    assert found["int8 by seeds"] == {"models": 1, "pass": 0, "faster": 0}
