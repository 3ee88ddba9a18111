from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hostile.reader import Reader
from tests.support.tuner.engines.fixtures import home
from tuner.host import catalogue, environments


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    python = environments.interpreter(catalogue.get("onnx"), home())
    found = Reader(python, tmp_path_factory.mktemp("hostile"), seconds=20.0)
    yield found
    found.close()
