"""Everything that a request may say is described in docs/reference/tuning.md."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from enum import StrEnum
from pathlib import Path

import pytest

from domain import targets
from domain.artifacts import Runtime
from domain.jobs import Budget, BundleFormat, JobRequest, Precision, RpcOptions, RunnerKind, Tuner, TunerOptions
from tuner.search import operators
from tunesmith import job_draft
from tunesmith.job_draft import AccuracyDraft, BudgetDraft, JobDraft, MeasureDraft, RpcDraft, TunerDraft

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reference" / "tuning.md").read_text()


@pytest.mark.parametrize("kind", [Tuner, RunnerKind, Precision, BundleFormat, Runtime])
def test_every_choice_is_described(kind: type[StrEnum]) -> None:
    assert [choice.value for choice in kind if f"`{choice.value}`" not in DOCUMENT] == []


@pytest.mark.parametrize("draft", [TunerDraft, MeasureDraft, JobDraft, BudgetDraft, AccuracyDraft])
def test_every_option_is_described(draft: type) -> None:
    missing = [
        field.name
        for field in fields(draft)
        if f"`{field.name}`" not in DOCUMENT and f"`--{field.name.replace('_', '-')}`" not in DOCUMENT
    ]
    assert missing == []


def test_a_draft_has_the_words_and_the_defaults_of_a_request() -> None:
    """The client has no domain, and the domain no client: both say what may be asked for."""
    drafted = JobDraft(rpc=RpcDraft())
    stored = JobRequest(model_digest="", budget=Budget(trials=1))
    assert asdict(drafted.measure) == asdict(stored.measure)
    assert asdict(drafted.accuracy) == asdict(stored.accuracy)
    assert drafted.rpc is not None
    assert drafted.rpc.session_timeout == RpcOptions.session_timeout
    assert drafted.runtimes == list(stored.runtimes)
    for name in ("target", "tuner", "runner", "precision", "bundle_format", "threads", "device", "group"):
        assert getattr(drafted, name) == getattr(stored, name), name
    shown = {option.path: option.form.unset for option in job_draft.options() if option.form}
    for name in ("search", "loss_type", "feature_type"):
        assert shown[f"tuner_options.{name}"] == getattr(stored.tuner_options, name)
    assert {field.name for field in fields(TunerDraft)} == {field.name for field in fields(TunerOptions)}


def test_every_operator_is_described() -> None:
    assert [name for name in operators.OPERATORS if f"`{name}`" not in DOCUMENT] == []
    assert [name for name in operators.ATTRIBUTES if f"`{name}`" not in DOCUMENT] == []


def test_every_target_of_the_page_is_one() -> None:
    shown = re.findall(r"`((?:llvm|cuda)(?: -[^`]+)?)`", DOCUMENT)
    assert len(shown) >= 3
    for text in shown:
        assert targets.check_text(text) == text
