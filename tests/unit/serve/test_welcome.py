"""What ``serve`` tells when it is ready."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve import supervisor
from tests.support.api.factories import TOKEN, make_service
from tests.support.api.live import serving


@pytest.mark.parametrize("settings", [{}, {"open": True}])
def test_a_link_that_works_and_a_warning_where_everyone_may_come_in(tmp_path: Path, settings: dict[str, Any]) -> None:
    service = make_service(tmp_path, **settings)
    with serving(service) as url:
        link, *warning = supervisor.lines(url, TOKEN)
        found = re.search(r"Dashboard: (http://\S+)  \(works once", link)
        assert found
        with httpx.Client() as browser:
            assert browser.get(found[1]).headers["location"] == "/"
            assert browser.get(f"{url}/v1/jobs").status_code == 200
    assert bool(warning) is bool(settings)
    assert all("TUNESMITH_OPEN" in line and url in line for line in warning)
    service.database.close()


def test_a_service_that_refuses_or_is_away_is_no_error(tmp_path: Path) -> None:
    service = make_service(tmp_path)
    with serving(service) as url:
        assert supervisor.lines(url, "wrong") == []
    assert supervisor.lines(url, TOKEN) == []
    service.database.close()
