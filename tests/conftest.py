"""Real servers for tests, each a process that is started once and shared; a test is skipped where one is missing.

``./run test`` says in its first lines what is missing and how to get it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
from collections.abc import Callable, Iterator

import pytest

from domain import errors
from process import logs
from tests.support.servers import postgresql, proxy, redis, s3
from tests.support.servers.processes import Missing
from tests.support.storage.buckets import Bucket

pytest_plugins = ["tests.support.tiers", "tests.support.storage.fixtures"]
_UMASK = os.umask(0)
os.umask(_UMASK)
# A shell has what it runs in the background ignore Ctrl-C, and that is inherited: tests send it to what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[postgresql.PostgreSQL]:
    """Shared, and quick rather than durable: tests make databases of their own, and leave the server running."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(postgresql.running())
        except Missing as missing:
            pytest.skip(str(missing))
        yield server


@pytest.fixture
def postgresql_url(postgresql_server: postgresql.PostgreSQL) -> Iterator[str]:
    """As ``TUNESMITH_DATABASE_URL`` has it, of an empty database of the test's own."""
    name = postgresql_server.create_database()
    yield postgresql_server.url(name)
    postgresql_server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def redis_server() -> Iterator[redis.Redis]:
    """Shared: whoever stops or freezes it starts one with ``redis.running()``."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(redis.running())
        except errors.ConfigurationError as missing:
            pytest.skip(missing.message)
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[s3.S3]:
    """Shared, with the bucket ``s3.BUCKET``; tests use prefixes or buckets of their own."""
    with s3.running() as server:
        yield server


@pytest.fixture
def bucket(s3_server: s3.S3) -> Bucket:
    """A bucket of the test's own."""
    name = f"test-{secrets.token_hex(6)}"
    s3_server.create_bucket(name)
    return Bucket(server=s3_server, name=name)


@pytest.fixture
def behind_proxy() -> Iterator[Callable[[int], proxy.Proxy]]:
    """Puts a proxy in front of a port."""
    with contextlib.ExitStack() as stack:
        yield lambda port: stack.enter_context(proxy.before(port))


@pytest.fixture(autouse=True)
def umask_as_it_was() -> Iterator[None]:
    """Programs that are started within a test keep what they make to themselves."""
    os.umask(_UMASK)
    yield
    os.umask(_UMASK)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Programs that are started within a test set up the logging of the whole process."""
    root = logging.getLogger()
    level = root.level
    levels = {name: logging.getLogger(name).level for name in (*logs._OWN, *logs._TALKATIVE)}
    yield
    root.handlers[:] = [
        each for each in root.handlers if not isinstance(each.formatter, logs.JsonLines | logs.TextLines)
    ]
    root.setLevel(level)
    for name, was in levels.items():
        logging.getLogger(name).setLevel(was)
    logging.captureWarnings(False)
