"""The REST reference: it says what the OpenAPI document says, and /docs asks nobody else for anything."""

from __future__ import annotations

import re

from fastapi.testclient import TestClient

from api.documentation import openapi, reference, reference_markdown
from api.documentation.page import marked
from tests.support.api.factories import Service


def test_the_document_has_every_operation_and_schema(service: Service) -> None:
    schema = service.app.openapi()
    made = reference_markdown.markdown(reference.read(schema))
    for _, path, _ in openapi.operations(schema):
        assert path in made
    for name in schema["components"]["schemas"]:
        assert name in made


def test_the_program_makes_it_without_a_service(service: Service) -> None:
    assert reference_markdown.schema_alone() == service.app.openapi()


def test_every_operation_and_schema_is_on_the_page(service: Service, client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    anchors = re.findall(r'id="([^"]+)"', page.text)
    assert len(anchors) == len(set(anchors))
    schema = service.app.openapi()
    for _, path, operation in openapi.operations(schema):
        assert operation["operationId"] in anchors
        assert path in page.text
    for name in schema["components"]["schemas"]:
        assert name in anchors
    assert set(re.findall(r'href="#([^"]+)"', page.text)) <= set(anchors), "a link leads nowhere"


def test_the_page_is_for_everyone_and_asks_nobody_else(client: TestClient) -> None:
    page = client.get("/docs", headers={"Authorization": "", "Accept": "text/html"})
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert not re.search(r'(src|href|action)="(https?:)?//', page.text)
    assert "<style" not in page.text
    assert not re.search(r"<script(?![^>]*\bsrc=)", page.text), "a script in the page"
    assert not re.search(r'\son\w+="', page.text)
    for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
        assert client.get(path).status_code == 200, path


def test_descriptions_are_text(client: TestClient) -> None:
    assert marked('<b> & "x" `a<b>` **c**') == "&lt;b&gt; &amp; &#34;x&#34; <code>a&lt;b&gt;</code> <b>c</b>"


def test_the_way_to_fastapis_own_pages_is_closed(client: TestClient) -> None:
    for path in ("/redoc", "/docs/oauth2-redirect"):
        assert client.get(path).status_code == 404
