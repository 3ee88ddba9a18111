"""What a bundle's README says of how it was measured."""

from __future__ import annotations

import dataclasses

import pytest

from tests.unit.tuner.test_bundle import MANIFEST, REPORT
from tuner.results import bundle_texts


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
