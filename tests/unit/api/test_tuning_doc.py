"""Everything that a request may say is described in docs/tuning.md."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest

from api.jobs.requests import AccuracyDraft, BudgetDraft, JobDraft, MeasureDraft, TunerDraft
from domain import targets
from domain.jobs import BundleFormat, Precision, RunnerKind, Tuner
from tuner import operators

DOCUMENT = (Path(__file__).parents[3] / "docs" / "tuning.md").read_text()


@pytest.mark.parametrize("kind", [Tuner, RunnerKind, Precision, BundleFormat])
def test_every_choice_is_described(kind: type[StrEnum]) -> None:
    assert [choice.value for choice in kind if f"`{choice.value}`" not in DOCUMENT] == []


@pytest.mark.parametrize("draft", [TunerDraft, MeasureDraft])
def test_every_option_is_described(draft: type[TunerDraft | MeasureDraft]) -> None:
    flags = [f"--{name.replace('_', '-')}" for name in draft.model_fields]
    missing = [
        name
        for name, flag in zip(draft.model_fields, flags, strict=True)
        if f"`{name}`" not in DOCUMENT and f"`{flag}`" not in DOCUMENT
    ]
    assert missing == []


@pytest.mark.parametrize("draft", [JobDraft, BudgetDraft, AccuracyDraft])
def test_every_field_is_described(draft: type[JobDraft | BudgetDraft | AccuracyDraft]) -> None:
    missing = [name for name in draft.model_fields if f"`{name}`" not in DOCUMENT and f"`--{name}`" not in DOCUMENT]
    assert missing == []


def test_every_operator_is_described() -> None:
    assert [name for name in operators.OPERATORS if f"`{name}`" not in DOCUMENT] == []
    assert [name for name in operators.ATTRIBUTES if f"`{name}`" not in DOCUMENT] == []


def test_every_target_of_the_page_is_one() -> None:
    shown = re.findall(r"`((?:llvm|cuda)(?: -[^`]+)?)`", DOCUMENT)
    assert len(shown) >= 3
    for text in shown:
        assert targets.check_text(text) == text
