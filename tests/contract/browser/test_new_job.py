"""The form for a new job in a browser."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.api.factories import AUTHORIZED, TOKEN, open_service
from tests.support.api.live import serving
from tests.support.browser.visit import visiting

pytestmark = pytest.mark.browser


def test_a_secret_survives_another_model_and_is_in_no_url(browser: Browser, tmp_path: Path) -> None:
    with open_service(tmp_path) as service, serving(service) as url, visiting(browser, url, TOKEN) as visit:
        model = httpx.put(f"{url}/v1/models?name=net", content=b"dynamic model", headers=AUTHORIZED).json()["id"]
        page, asked = visit.page, list[str]()
        page.on("request", lambda request: asked.append(request.url))
        visit.go("/new")
        page.locator("summary").click()
        page.locator("[name='webhook.secret']").fill("whsec_x")
        page.locator("#model").select_option(model)
        expect(page.locator("#dimension-0")).to_have_value("1")
        expect(page.locator("[name='webhook.secret']")).to_have_value("whsec_x")
        assert page.url.endswith(f"/new?model={model}")
    assert any(address.endswith("/new/model") for address in asked)
    assert not any("whsec_x" in address for address in asked)
