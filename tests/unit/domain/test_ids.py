from __future__ import annotations

import re
from datetime import timedelta

from domain import ids
from tests.support.storage.factories import NOW


def test_job_ids_sort_by_time_and_never_repeat() -> None:
    moments = [NOW + timedelta(milliseconds=step) for step in range(2000)]
    made = [ids.job(moment) for moment in moments]
    assert made == sorted(made)
    assert len({ids.job(NOW) for _ in range(2000)}) == 2000
    assert all(re.fullmatch(r"j-[0-9a-z]{20}", name) for name in made)


def test_content_is_named_by_its_digest() -> None:
    digest = "0123456789abcdef" * 4
    assert ids.model(digest) == "m-0123456789ab"
    assert ids.artifact(digest) == "a-0123456789ab"
