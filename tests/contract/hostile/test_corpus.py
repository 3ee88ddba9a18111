"""Hostile files before the engine that inspects uploads: each a typed refusal, whatever it does to its reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain import errors
from tests.support import models
from tests.support.hostile import corpus
from tests.support.hostile.fates import REFUSED, Hostile
from tests.support.hostile.reader import Reader
from tests.support.tuner.engines.fixtures import home
from tuner.host import catalogue, environments
from tuner.host.inspection import Inspector

pytestmark = [pytest.mark.engine, pytest.mark.smoke]


@pytest.mark.parametrize("hostile", corpus.corpus(), ids=lambda hostile: hostile.name)
def test_it_is_refused_for_what_it_is(reader: Reader, hostile: Hostile) -> None:
    reason = reader.inspect(hostile.content)
    if hostile.fate == REFUSED:
        assert reason == hostile.reason if hostile.reason else reason
    else:
        assert reason is None


def test_what_only_looks_like_it_is_taken(reader: Reader) -> None:
    """In a function's body the block size has no value: it is the caller's."""
    content = models.block_size_of_the_caller()
    assert reader.inspect(content) is None
    assert reader.prepare(content) is None


@pytest.mark.parametrize(
    "name", ["kernel_of_another_rank", "strides_of_zero", "constant_of_40_gb", "external_absolute", "text"]
)
def test_an_upload_of_it_is_an_invalid_model(name: str, tmp_path: Path) -> None:
    content = next(hostile.content for hostile in corpus.corpus() if hostile.name == name)
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    spec = catalogue.get("onnx")
    with pytest.raises(errors.InvalidModel):
        Inspector(spec=spec, python=environments.interpreter(spec, home()), home=home()).inspect(path)


def test_an_upload_with_unknown_operators_names_them(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.foreign_operators())
    spec = catalogue.get("onnx")
    with pytest.raises(errors.UnsupportedOperators, match="Twist") as caught:
        Inspector(spec=spec, python=environments.interpreter(spec, home()), home=home()).inspect(path)
    assert "custom-operators.md" in str(caught.value.hint)
