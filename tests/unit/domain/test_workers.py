"""What is told of workers that differ."""

from __future__ import annotations

from dataclasses import replace

from domain import workers
from tests.unit.domain.test_capabilities import WORKER

NEW = replace(WORKER, release="1.0")


def test_workers_that_agree_raise_no_doubt() -> None:
    assert workers.fleet_warnings([NEW, replace(NEW, clock_ahead=4.0)], version="1.0") == []
    assert workers.fleet_warnings([], version="1.0") == []


def test_other_releases_are_named() -> None:
    (warning,) = workers.fleet_warnings([NEW, WORKER, replace(WORKER, release="0.9")], version="1.0")
    assert warning.code == "workers_differ"
    assert warning.message == "some workers run an unknown older release, release 0.9; this server runs release 1.0"


def test_clocks_that_are_off_are_named() -> None:
    late = replace(NEW, hostname="late", clock_ahead=-60.2)
    (warning,) = workers.fleet_warnings([NEW, late, replace(NEW, hostname="early", clock_ahead=3600.0)], version="1.0")
    assert warning.code == "clock_differs"
    assert warning.message.endswith("early by +3600 s, late by -60 s")
