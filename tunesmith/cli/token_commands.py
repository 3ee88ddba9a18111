"""``token create``, ``token list``, ``token revoke`` and ``login``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from tunesmith.cli import connecting, options, output

app = typer.Typer(help="Manage access tokens and their quotas. For admins.", no_args_is_help=True)

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_BYTES = {"": 1, "k": 1000, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_CREATE_EPILOG = """\b
Examples:
  tunesmith token create CI --owner vision --expires 90d
  tunesmith token create dashboard --scope read
  tunesmith token create intern --queued-jobs 5 --running-jobs 1 --stored 2G
"""
_LOGIN_EPILOG = """\b
Examples:
  tunesmith login
  xdg-open $(tunesmith login)
"""


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="token")
    root.command(epilog=_LOGIN_EPILOG)(login)


@app.command(epilog=_CREATE_EPILOG)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Display name.")],
    owner: Annotated[str | None, typer.Option(help="Owner of its jobs and models.  [default: you]")] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="read, submit or admin; repeatable, as none implies another.  [default: read and submit]"),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="AFTER", help="Lifetime, such as 12h, 90d or 52w.  [default: no expiry]")
    ] = None,
    running_jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of running jobs; more stay queued.")
    ] = None,
    queued_jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of queued jobs; more are rejected.")
    ] = None,
    stored: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Maximum size of the owner's models and artifacts: 500M, 2G.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Create a token. Its text is printed only once."""
    with connecting.client() as client:
        token = client.tokens.create(
            name,
            owner=owner,
            scopes=scope or ["read", "submit"],
            expires_in_seconds=_seconds(expires),
            running_jobs=running_jobs,
            queued_jobs=queued_jobs,
            stored_bytes=_bytes(stored),
        )
    if as_json:
        output.document({**token.data, "token": token.text})
        return
    output.line(str(token.text))
    output.note(
        f"{token.id}: {', '.join(token.scopes)} for {token.owner}, {_until(token.data['expires_at'])}. "
        "Save it now: the server stores only its digest. Use it as TUNESMITH_TOKEN."
    )


@app.command(name="list")
def list_(
    owner: Annotated[str | None, typer.Option(help="Only tokens of this owner.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include revoked and expired tokens.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of tokens to list.")] = 50,
    as_json: options.Json = False,
) -> None:
    """List the tokens, newest first."""
    with connecting.client() as client:
        wanted = (token.data for token in client.tokens.list(owner=owner) if everything or token.data["active"])
        found = list(itertools.islice(wanted, limit))
    if as_json:
        output.document(found)
        return
    _show(found)


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Id of a token; `token list` shows them.")],
    as_json: options.Json = False,
) -> None:
    """Revoke a token and the browser sessions it opened. Its jobs continue."""
    with connecting.client() as client:
        revoked = client.tokens.revoke(token)
    output.answer(revoked.data, f"{revoked.id} ({revoked.name}) is revoked", as_json=as_json)


def login(as_json: options.Json = False) -> None:
    """Print a login link for the dashboard.

    The link works once, within ten minutes. The browser gets your permissions.
    """
    with connecting.client() as client:
        link = client.tokens.login_link()
    output.answer(link, link["url"], as_json=as_json)


def _show(found: Sequence[dict[str, Any]]) -> None:
    """Print limits on lines of their own, as a narrow table has no room for them."""
    if not found:
        output.note("no tokens; create one: tunesmith token create NAME")
        return
    headers = ["TOKEN", "OWNER", "SCOPES", "STATE", "LAST USED", "NAME"]
    header, *rows = output.table(headers, [_row(token) for token in found], optional=["NAME", "STATE", "LAST USED"])
    output.line(header)
    for row, token in zip(rows, found, strict=True):
        output.line(row)
        if limits := _limits(token["quota"]):
            output.paragraph(f"  limits: {limits}")


def _limits(quota: dict[str, Any]) -> str:
    limits = {"running_jobs": "running", "queued_jobs": "queued", "stored_bytes": "stored"}
    shown = [
        f"{output.size(quota[name]) if name == 'stored_bytes' else quota[name]} {word}"
        for name, word in limits.items()
        if quota[name] is not None
    ]
    return ", ".join(shown)


def _row(token: dict[str, Any]) -> list[str]:
    return [
        token["id"],
        token["owner"],
        ",".join(token["scopes"]),
        "revoked" if token["revoked_at"] else _until(token["expires_at"]),
        output.when(token["last_used_at"]) if token["last_used_at"] else "never",
        token["name"],
    ]


def _until(expires_at: str | None) -> str:
    if expires_at is None:
        return "never expires"
    is_over = datetime.fromisoformat(expires_at) <= datetime.now().astimezone()
    return f"{'expired' if is_over else 'until'} {output.when(expires_at)}"


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9})([smhdw])", text)
    if not found:
        raise typer.BadParameter(f"--expires must be a number and s, m, h, d or w, such as 90d, not {text!r}")
    return int(found[1]) * _SECONDS[found[2]]


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,12})([kKMGT]?)B?", text)
    if not found:
        raise typer.BadParameter(f"--stored must be a number of bytes, such as 500M or 2G, not {text!r}")
    return int(found[1]) * _BYTES[found[2]]
