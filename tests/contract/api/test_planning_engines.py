"""A plan made by real engines for a real model, and of one that they cannot import."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from domain.models import ModelFacts, TensorSpec
from domain.targets import Target, Toolchain
from storage import models as stored
from tests.support import models
from tests.support.api.factories import AUTHORIZED, Service, open_service
from tests.support.api.scripted import ScriptedWorker
from tuner.host.extraction import InstalledPlanner, questions
from tuner.host.settings import TunerSettings
from tunesmith import connection

pytestmark = pytest.mark.engine


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    planner = InstalledPlanner(home=connection.home(), settings=TunerSettings())
    toolchains, cpu = [], ""
    for name in ("relay", "relax"):
        with questions(planner, name, lambda: False) as asking:
            toolchains.append(Toolchain.of(asking.hello))
            cpu = asking.hello["mcpu"]
    target = Target(text=f"llvm -mcpu={cpu}", threads=2)
    with open_service(tmp_path, planner=planner) as made:
        ScriptedWorker(made).beat(toolchains=tuple(toolchains), native_target=target)
        yield made


def upload(service: Service, content: bytes, *inputs: TensorSpec) -> str:
    """Past the fake inspection, which knows other bytes."""
    blob = service.blobs.put([content])
    facts = ModelFacts(inputs=inputs, outputs=(), opset=13, ir_version=8, operators={}, parameters=1)
    with service.database.transaction() as session:
        model, _ = stored.add(
            session, digest=blob.digest, name="net", size_bytes=blob.size_bytes, facts=facts, now=datetime.now(UTC)
        )
    return model.id


def test_real_engines_plan_a_real_model(service: Service) -> None:
    spec = TensorSpec(name="image", dtype="float32", shape=("batch", 3, "height", "width"))
    request = {
        "model": upload(service, models.small_network(), spec),
        "input_shapes": {"image": [1, 3, 16, 16]},
        "budget": {"trials": 64},
    }
    with TestClient(service.app, headers=AUTHORIZED) as client:
        plan = client.post("/v1/jobs:plan", json=request).json()
        assert plan["possible"] is True
        assert plan["notes"] == []
        assert [engine["imports"] for engine in plan["engines"]] == [True, True], plan
        tuners = {one["tuner"]: one for engine in plan["engines"] for one in engine["tuners"]}
        assert set(tuners) == {"autotvm", "ansor", "metaschedule"}
        for tuner in tuners.values():
            assert tuner["tasks"] >= 2
            assert (tuner["tasks_covered"] < tuner["tasks"], tuner["trials"] <= 64, tuner["trials"] > 0) == (True,) * 3
        assert client.post("/v1/jobs:plan", json=request).json() == plan
        unknown = client.post("/v1/jobs:plan", json={**request, "target": "llvm -mcpu=znver33"})
        assert (unknown.status_code, unknown.json()["code"]) == (400, "unknown_target"), unknown.json()
        assert "znver3" in unknown.json()["details"]["near_matches"]


def test_real_engines_name_what_they_lack(service: Service) -> None:
    model = upload(service, models.unsupported_operators())
    with TestClient(service.app, headers=AUTHORIZED) as client:
        answer = client.post("/v1/jobs:plan", json={"model": model})
    plan = answer.json()
    assert (answer.status_code, plan["possible"]) == (200, False), plan
    for engine in plan["engines"]:
        assert engine["failure"]["code"] == "unsupported_operators", engine
        assert sum(engine["unsupported_operators"].values()) >= 1
        assert "docs/how-to/custom-operators.md" in engine["failure"]["hint"]
