"""PostgreSQL for benchmarks, where somebody says where one is."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import create_engine, make_url
from sqlalchemy.schema import CreateSchema, DropSchema


def default_url() -> str | None:
    return os.environ.get("TUNESMITH_TEST_DATABASE_URL")


@contextmanager
def own_schema(url: str) -> Iterator[str]:
    """The URL of an empty schema in that database, which goes with the block."""
    server, name = create_engine(url), f"bench_{secrets.token_hex(6)}"
    with server.begin() as connection:
        connection.execute(CreateSchema(name))
    try:
        made = make_url(url).update_query_dict({"options": f"-csearch_path={name}"})
        yield made.render_as_string(hide_password=False)
    finally:
        with server.begin() as connection:
            connection.execute(DropSchema(name, cascade=True))
        server.dispose()
