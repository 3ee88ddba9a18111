from __future__ import annotations

from typing import Any

from bench import outcomes


def _build(precision: str, *, seconds: float | None = None, verified: bool = True, verdict: str = "") -> dict[str, Any]:
    return {"precision": precision, "seconds": seconds, "verified": verified, "verdict": verdict}


REPORT = {
    "precision": "bf16",
    "choice": ["autotvm leads.", "For int8, the model was quantized with 50 rows of the data set: 53 Conv."],
    "portfolio": [
        _build("bf16", seconds=0.004, verdict="published"),
        _build("bf16", seconds=0.005),
        _build("f32", seconds=0.008),
        _build("int8", seconds=0.001, verified=False, verdict="The int8 build was rejected: top-1 agreement 90 %."),
    ],
}


def test_a_precision_passes_if_a_build_of_it_met_the_gate() -> None:
    told = outcomes.of_report(REPORT)
    assert told["bf16"] == {"passes": True, "ms": 4.0, "f32_ms": 8.0, "said": "published"}
    assert told["int8"] == {
        "passes": False, "ms": None, "f32_ms": 8.0, "said": "The int8 build was rejected: top-1 agreement 90 %."
    }  # fmt: skip
    assert told["published"] == "bf16"
    assert told["quantized"] == REPORT["choice"][1]


def test_a_precision_that_was_not_built_has_no_outcome() -> None:
    told = outcomes.of_report({**REPORT, "portfolio": [_build("f32", seconds=0.008)], "choice": []})
    assert "int8" not in told
    assert told["quantized"] is None


def test_models_that_pass_and_are_faster_are_counted() -> None:
    row = {"model": "opennsfw", "data": outcomes.of_report(REPORT), "seeds": {}}
    found = outcomes.summary([row, {"model": "magika", "reason": "ValueError: no rows"}])
    assert found["bf16 by data"] == {"models": 1, "pass": 1, "faster": 1}
    assert found["int8 by data"] == {"models": 1, "pass": 0, "faster": 0}
    assert found["bf16 by seeds"] == {"models": 0, "pass": 0, "faster": 0}
