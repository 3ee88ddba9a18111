"""Some of the faults, with scripted engines, so that they take a minute or two; ``./run faults`` does all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults import running as faults_running
from tests.faults.catalogue import FAULTS
from tests.faults.trying import attempt
from tests.servers.processes import Missing
from tests.topology.engines import Engines
from tests.topology.running import Topology

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def topology() -> Iterator[Topology]:
    context = faults_running.topology(Engines.SCRIPTED)
    try:
        made = context.__enter__()
    except Missing as missing:
        pytest.skip(str(missing))
    yield made
    context.__exit__(None, None, None)


@pytest.mark.parametrize("name", ["kill-worker", "kill-engine", "restart-database", "freeze-broker", "poison"])
def test_nothing_is_lost_and_nothing_paid_twice(topology: Topology, name: str) -> None:
    tried = attempt(FAULTS[name], topology, 0)
    assert not tried.wrong, tried
    assert (tried.lost, tried.twice) == (0, 0)
