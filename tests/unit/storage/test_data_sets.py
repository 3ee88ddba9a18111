"""Data sets in both databases."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from domain import errors
from domain.data_sets import DataFacts, DataSet
from domain.digests import BlobDigest, FileDigest
from domain.models import TensorSpec
from domain.tokens import Principal
from storage import data_sets, jobs
from tests.support.storage.factories import NOW, add_job

FACTS = DataFacts(arrays=(TensorSpec(name="x", dtype="float32", shape=(4, 3)),), rows=4)
ANN = Principal(owner="ann", scopes=frozenset())
BOB = Principal(owner="bob", scopes=frozenset())


def add(session: Session, *, name: str = "val", owner: str = "ann", digit: str = "d") -> DataSet:
    digest = BlobDigest(FileDigest(digit * 64))
    return data_sets.add(session, digest=digest, name=name, owner=owner, size_bytes=9, facts=FACTS, now=NOW)


def test_a_data_set_is_found_by_id_name_and_bytes(session: Session) -> None:
    made = add(session)
    for wanted in (made.id, "val"):
        assert data_sets.get(session, wanted, ANN) == data_sets.get(session, wanted, ANN, keep=True) == made
    assert data_sets.find(session, "ann", made.digest) == made
    assert data_sets.find(session, "bob", made.digest) is None
    with pytest.raises(errors.DataSetNotFound):
        data_sets.get(session, made.id, BOB)


def test_a_name_is_free_again_after_deletion(session: Session) -> None:
    made = add(session)
    add(session, owner="bob")
    with pytest.raises(errors.DataSetNameTaken):
        add(session, digit="e")
    assert data_sets.get(session, "val", ANN) == made
    data_sets.delete(session, made, now=NOW)
    again = add(session, digit="e")
    assert data_sets.get(session, "val", ANN) == again
    with pytest.raises(errors.DataSetDeleted):
        data_sets.get(session, made.id, ANN)
    with pytest.raises(errors.DataSetDeleted):
        data_sets.of_job(session, made.id)


def test_unfinished_jobs_keep_their_data_set(session: Session) -> None:
    made, other = add(session), add(session, name="other")
    job = add_job(session, data=made.id)
    data_sets.delete(session, other, now=NOW)
    with pytest.raises(errors.DataSetInUse) as caught:
        data_sets.delete(session, made, now=NOW)
    assert caught.value.details == {"jobs": [job.id]}
    jobs.request_cancel(session, job.id, now=NOW)
    data_sets.delete(session, made, now=NOW)


def test_pages_are_of_what_one_sees(session: Session) -> None:
    made = {name: add(session, name=name).id for name in ("a", "b", "c")}
    add(session, owner="bob")
    first, following = data_sets.page(session, ANN, limit=2)
    rest, last = data_sets.page(session, ANN, limit=2, page_token=following)
    assert last is None
    assert {each.id for each in (*first, *rest)} == set(made.values())
