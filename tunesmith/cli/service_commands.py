"""``serve`` and ``worker``: the service itself, there in a checkout but not in the client's wheel."""

from __future__ import annotations

import importlib
import os
from typing import Annotated, Any

import typer

from tunesmith import connection, errors

_SERVE_EPILOG = """\b
Examples:
  tunesmith serve
  tunesmith serve --host 0.0.0.0 --port 8080
\b
It prints a link with which a browser comes in. Settings: docs/settings.md.
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_SERVE_EPILOG)(serve)
    app.command()(worker)


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.  [default: TUNESMITH_HOST or 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0 picks a free one.  [default: TUNESMITH_PORT or 8000]")
    ] = None,
) -> int:
    """Start broker, API and worker; Ctrl-C stops them."""
    main = _server_part("worker.supervisor").main
    given_host = host or os.environ.get("TUNESMITH_HOST") or "127.0.0.1"
    given_port = _port_of_environment() if port is None else port
    api_settings = _server_part("api.settings").ApiSettings
    return int(main(host=given_host, port=given_port, home=connection.home(), api_settings=api_settings))


def _port_of_environment() -> int:
    text = os.environ.get("TUNESMITH_PORT") or "8000"
    if not text.isdecimal() or int(text) > 65535:
        raise errors.ConfigurationError(f"TUNESMITH_PORT is {text!r}, which is no port", hint="0 picks a free one.")
    return int(text)


def worker() -> int:
    """Start a worker that takes jobs; Ctrl-C stops it.

    The job that it works on goes back into the queue.
    """
    return int(_server_part("worker.main").main())


def _server_part(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise errors.ConfigurationError(
            f"this installation holds the client only ({error.name} is missing)",
            hint="Start the service from a checkout: ./run serve.",
        ) from error
