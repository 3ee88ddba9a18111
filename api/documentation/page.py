"""The REST reference as a page without external resources."""

from __future__ import annotations

import re
from collections.abc import Collection

from fastapi import APIRouter, Request, Response
from markupsafe import Markup, escape

from api.dashboard import rendering
from api.documentation import reference

router = APIRouter(include_in_schema=False)

_BOLD = re.compile(r"\*\*(.+?)\*\*")
_NAME = re.compile(r"[A-Z]\w+")
_CODE = re.compile(r"`(.+?)`")


@router.get("/docs")
def docs(request: Request) -> Response:
    """Show the reference; like the OpenAPI document, it needs no token."""
    found = reference.read(request.app.openapi())
    names = {shape.name for shape in found.shapes}

    def kind(text: str) -> Markup:
        return linked(text, names)

    return rendering.page(request, "docs.html", reference=found, marked=marked, paragraphs=paragraphs, kind=kind)


def linked(text: str, names: Collection[str]) -> Markup:
    """Return ``text`` with links to the schemas that it names."""

    def link(match: re.Match[str]) -> str:
        name = match.group()
        return f'<a href="#{name}">{name}</a>' if name in names else name

    return Markup(_NAME.sub(link, str(escape(text))))  # noqa: S704 - escaped


def paragraphs(text: str) -> list[Markup]:
    return [marked(part) for part in text.split("\n\n")]


def marked(text: str) -> Markup:
    """Render bold and code of Markdown; everything else is plain text."""
    escaped = str(escape(text))
    return Markup(_CODE.sub(r"<code>\1</code>", _BOLD.sub(r"<b>\1</b>", escaped)))  # noqa: S704 - escaped above
