"""Spoiled models: whatever they are, the answer is typed, and the reader has its limits."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import models
from tests.support.hostile import mutations
from tests.support.hostile.reader import ENDED, Reader


@given(seed=st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_a_seed_names_one_file(seed: int) -> None:
    assert mutations.mutated(seed) == mutations.mutated(seed)


def test_what_is_parsed_is_written_as_it_was() -> None:
    for content in (models.small_network(), models.lstm(), models.plugin_operators(functions=True)):
        fields = mutations.parsed(content)
        assert fields is not None
        assert mutations.encoded(fields) == content


@pytest.mark.engine
@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=500,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_mutation_ends_in_a_model_or_a_typed_refusal(reader: Reader, seed: int) -> None:
    content = mutations.mutated(seed)
    if reader.inspect(content) is None:
        # It may run now, and may end its reader; but then its reader alone.
        reader.prepare(content)
    else:
        assert reader.prepare(content) is not None, "what is refused as an upload is no model for a job either"


@pytest.mark.engine
def test_the_reader_goes_on_after_what_ended_it(reader: Reader) -> None:
    content = next(hostile.content for hostile in mutations.corpus.corpus() if hostile.name == "kernel_of_another_rank")
    assert reader.inspect(content) == ENDED
    assert reader.inspect(models.small_network()) is None
