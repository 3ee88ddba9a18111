"""What is said of an output that was compared with the reference."""

from __future__ import annotations

from typing import Any

import pytest

from domain.artifacts import LARGEST_ERROR, OutputError


@pytest.mark.parametrize(
    ("changes", "found", "allowed"),
    [
        ({}, "off by 0.17 % of its largest magnitude", "0.05 %"),
        ({"max_rel": 25.0}, "off by 25 times of its largest magnitude", "0.05 %"),
        ({"dtype": "int64", "max_abs": 3.0, "rtol": 0.0, "atol": 0.0}, "off by 3", "0"),
        ({"fault": "wrong shape: 1×4 instead of 1×3"}, "wrong shape: 1×4 instead of 1×3", "0.05 %"),
        ({"fault": "NaN", "not_finite": 6}, "NaN in 6 elements", "0.05 %"),
        ({}, "NaN, infinite or of a wrong shape", "0.05 %"),
        (
            {"max_rel": 1e-4, "rms": 1e-3, "rms_limit": 2e-4, "part": "index 3 of axis 1"},
            "off by 0.1 % of its root mean square at index 3 of axis 1",
            "0.02 %",
        ),
        ({"max_rel": 1e-4, "rms": 1e-3, "rms_limit": 2e-4}, "off by 0.1 % of its root mean square", "0.02 %"),
        ({"rms": 1e-3, "rms_limit": 2e-4}, "off by 0.17 % of its largest magnitude", "0.05 %"),
        ({"max_rel": 1e-4, "top1": 0.9375, "least_top1": 0.99}, "top-1 agreement 93.8%", "at least 99.0%"),
    ],
)
def test_an_error_is_described_with_its_limit(changes: dict[str, Any], found: str, allowed: str) -> None:
    error: dict[str, Any] = {
        "output": "y", "dtype": "float32", "max_abs": 0.02, "max_rel": 0.0017, "atol": 1e-5, "rtol": 5e-4,
        "passed": False,
    }  # fmt: skip
    if "NaN" in found or "shape" in found:
        changes = {**changes, "max_abs": LARGEST_ERROR, "max_rel": LARGEST_ERROR}
    output = OutputError(**{**error, **changes})
    assert (output.found, output.allowed) == (found, allowed)
