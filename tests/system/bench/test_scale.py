"""The benchmark of one job over many workers, in small and on PostgreSQL: real processes and a real broker."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import make_url

from bench import scale
from bench.scale_engine import TASKS
from tests.support.servers.postgresql import PostgreSQL

pytestmark = pytest.mark.engine

TRIALS = TASKS * 2


def test_two_workers_share_the_trials(
    postgresql_server: PostgreSQL, postgresql_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--workers", "2", "--seconds", "0.1", "--trials", str(TRIALS), "--turns", "1"]
    assert scale.main(["--json", *small, "--url", postgresql_url]) == 0
    told = json.loads(capsys.readouterr().out)
    [row] = told["fleets"]
    assert (told["database"], row["trials"], row["duplicates"]) == ("postgresql", [TRIALS], 0)
    [shares] = row["trials_per_worker"]
    assert (len(shares), sum(shares)) == (2, TRIALS)
    with postgresql_server.connect(make_url(postgresql_url).database or "") as connection:
        left = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'bench%'").fetchall()
    assert left == []
