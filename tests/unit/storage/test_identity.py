"""Who a database is."""

from __future__ import annotations

import threading

from sqlalchemy.orm import Session

from storage import blob_owners
from storage.database import Database
from tests.support.storage.factories import NOW


def test_an_identity_is_made_once_and_renewed_when_that_is_wanted(session: Session) -> None:
    assert blob_owners.identity(session) is None
    first = blob_owners.own_identity(session, now=NOW)
    assert blob_owners.own_identity(session, now=NOW) == blob_owners.identity(session) == first
    assert blob_owners.renew_identity(session, now=NOW) == blob_owners.own_identity(session, now=NOW) != first


def test_all_who_ask_at_once_hear_the_same(database: Database) -> None:
    heard, together = [], threading.Barrier(6)

    def ask() -> None:
        together.wait()
        with database.transaction() as session:
            heard.append(blob_owners.own_identity(session, now=NOW))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 6
    assert len(set(heard)) == 1
