"""Wherever a page leads, there is something."""

from __future__ import annotations

import re
from html import unescape

from fastapi.testclient import TestClient

from tests.support.api.factories import Service
from tests.support.dashboard.seeding import Seeded

_JOB_ID = re.compile(r"j-[0-9a-z]{20}")


def test_no_link_of_any_page_leads_nowhere(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    seen: dict[str, int] = {}
    pages = ["/", "/?state=failed&text=x", "/models", "/data", "/records", "/fleet", "/compare", "/new", "/docs"]
    models = set(re.findall(r'href="(/models/[^"/]+)"', browser.get("/models").text))
    assert models
    for page in [*pages, *models, *(f"/jobs/{job_id}" for job_id in full[1].all.values())]:
        text = browser.get(page).text
        for found in set(re.findall(r'(?:href|src|action|hx-get|data-curve)="([^"]+)"', text)):
            address = unescape(found)
            kind = _JOB_ID.sub("JOB", address)
            if kind not in seen and not address.startswith("#") and not address.endswith(("/cancel", "/retry")):
                seen[kind] = browser.get(address).status_code
    # What is changed by POST alone answers GET with 405, and a list that the browser has with 204.
    wrong = {address: status for address, status in seen.items() if status not in (200, 204, 405)}
    assert not wrong
    assert len(seen) > 40
