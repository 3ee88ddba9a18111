from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from domain.jobs import Lease
from tests.support.storage.factories import leased


@pytest.fixture
def held(session: Session) -> tuple[str, Lease]:
    """A job that is claimed, and the lease."""
    return leased(session)
