"""Some of the faults, with scripted engines, so that they take a minute or two; ``./run faults`` does all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from domain.jobs import JobState
from tests.support.servers.processes import Missing
from tests.support.topology.engines import Engines
from tests.support.topology.running import Topology
from tests.system.faults import running as faults_running
from tests.system.faults.ledger import Ledger
from tests.system.faults.scene import Scene
from tests.system.faults.trying import attempt

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


def test_the_log_of_a_job_of_another_host_is_read_at_the_api(topology: Topology) -> None:
    scene = Scene(topology=topology, ledger=Ledger([]), number=0)
    job_id = scene.submit(trials=8)
    assert scene.wait_until_done(job_id).state is JobState.SUCCEEDED
    answer = topology.client.get(f"/v1/jobs/{job_id}/log", params={"offset": 0})
    name = f"logs/jobs/{job_id}.log"
    assert not (topology.hosts["front"].home / name).exists(), "the API has a home of its own"
    (file,) = [host.home / name for host in topology.hosts.values() if (host.home / name).exists()]
    assert "the scripted relay engine\n" in answer.text
    assert answer.text == file.read_text()
    assert int(answer.headers["Tunesmith-Next-Offset"]) == file.stat().st_size


@pytest.mark.parametrize("name", ["kill-worker", "kill-engine", "restart-database", "freeze-broker", "poison", "older"])
def test_nothing_is_lost_and_nothing_paid_twice(topology: Topology, name: str) -> None:
    tried = attempt(faults_running.FAULTS[name], topology, 0)
    assert not tried.wrong, tried
    assert (tried.lost, tried.twice) == (0, 0)
