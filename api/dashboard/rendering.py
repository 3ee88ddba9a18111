"""Rendering of templates. Values are escaped, and undefined names are errors."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.dashboard import assets, formats
from api.middleware.credentials import COOKIE
from domain import release, sizes
from domain.tokens import Principal

NAVIGATION = (
    ("/", "Jobs"),
    ("/new", "New job"),
    ("/models", "Models"),
    ("/data", "Data"),
    ("/compare", "Compare"),
    ("/records", "Records"),
    ("/fleet", "Fleet"),
)

_FILTERS = {
    "latency": formats.latency,
    "sentence": formats.sentence,
    "ratio": formats.ratio,
    "percent": formats.percent,
    "duration": formats.duration,
    "age": formats.age,
    "moment": formats.moment,
    "size": formats.size,
    "count_of": formats.count,
    "gflops": formats.gflops,
    "digits": formats.digits,
    "shape": formats.shape,
    "choices": sizes.choices_of,
    "words": formats.words,
    "toolchain": formats.toolchain,
}


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(sorted(Path(__file__).parents[1].glob("*/templates"))),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(_FILTERS)
    environment.globals.update(static=assets.url, navigation=NAVIGATION, version=release.VERSION)
    environment.globals["ui"] = environment.get_template("macros.html").module
    return environment


_TEMPLATES = _environment()


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a page as an uncached response; see ``text`` for the names that templates can use."""
    return HTMLResponse(text(request, template, **context), status_code=status, headers={"Cache-Control": "no-store"})


def text(request: Request, template: str, **context: Any) -> str:
    """Render a template with ``context`` and ``now``, ``path``, ``fragment`` (an htmx request) and ``signed_in``."""
    known = {
        "now": datetime.now(UTC),
        "path": request.url.path,
        "fragment": is_fragment(request),
        "signed_in": _signed_in(request),
    }
    return _TEMPLATES.get_template(template).render({**known, **context})


def _signed_in(request: Request) -> str | None:
    """Return the owner of the browser session; None without a session."""
    # Errors before authentication are rendered as pages, too.
    caller = getattr(request.state, "caller", None)
    return caller.owner if isinstance(caller, Principal) and COOKIE in request.cookies else None


def is_fragment(request: Request) -> bool:
    """Return whether htmx requests a part of the page, and does not restore a whole one from the history."""
    return "hx-request" in request.headers and "hx-history-restore-request" not in request.headers
