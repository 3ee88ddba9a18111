"""What is remembered as long as nothing was committed."""

from __future__ import annotations

from typing import Any, cast

from api.live.unchanged import Unchanged
from storage.database import Database
from storage.versions import Version


class Versions:
    """Stands in for a database."""

    def __init__(self) -> None:
        self.now: Version | None = (1, 1)

    def version(self) -> Version | None:
        return self.now


def make(clock: list[float]) -> tuple[Versions, Unchanged[str]]:
    versions = Versions()
    return versions, Unchanged(cast(Database, versions), clock=lambda: clock[0])


def test_it_holds_until_the_next_commit() -> None:
    versions, known = make([0.0])
    nothing, version = known.recall("a")
    assert nothing is None
    known.keep("a", version, "told")
    assert known.recall("a")[0] == "told"
    assert known.recall("b")[0] is None
    versions.now = (1, 2)
    assert known.recall("a") == (None, (1, 2))


def test_what_was_read_while_something_was_committed_is_not_held() -> None:
    versions, known = make([0.0])
    _, version = known.recall("a")
    versions.now = (1, 2)
    known.keep("a", version, "of before or after, who knows")
    assert known.recall("a")[0] is None


def test_it_holds_for_a_second_at_most() -> None:
    clock = [0.0]
    _, known = make(clock)
    known.keep("a", (1, 1), "told")
    clock[0] = 0.9
    assert known.recall("a")[0] == "told"
    clock[0] = 1.0
    assert known.recall("a")[0] is None


def test_without_a_version_nothing_is_held() -> None:
    versions, known = make([0.0])
    versions.now = None
    _, version = known.recall("a")
    known.keep("a", version, "told")
    assert known.recall("a") == (None, None)


def test_only_so_many_are_held(monkeypatch: Any) -> None:
    monkeypatch.setattr("api.live.unchanged._MOST", 2)
    _, known = make([0.0])
    for key in "abc":
        known.keep(key, (1, 1), key)
    assert [known.recall(key)[0] for key in "abc"] == [None, "b", "c"]
