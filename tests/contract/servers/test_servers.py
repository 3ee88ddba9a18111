"""The servers of this folder: that they run, keep what they should, and fail as they are told to."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import boto3
import psycopg
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from redis import Redis as RedisClient
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.support.servers import postgresql, processes, redis
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import Redis
from tests.support.servers.s3 import BUCKET, KEY_ID, REGION, S3, SECRET


def test_what_postgresql_committed_survives_its_death() -> None:
    try:
        context = postgresql.running(fsync=True)
        server = context.__enter__()
    except processes.Missing as missing:
        pytest.skip(str(missing))
    try:
        server.execute("CREATE TABLE kept (number int)")
        server.execute("INSERT INTO kept VALUES (7)")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            server.connect()
        server.start()
        server.restart()
        with server.connect() as connection:
            assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]
    finally:
        context.__exit__(None, None, None)
    assert server.process is None
    assert not server.folder.exists()


def test_what_the_broker_was_told_survives_its_death_and_its_sleep() -> None:
    with redis.running() as server:
        client = _client(server.port)
        client.set("kept", "7")
        server.kill()
        with pytest.raises(RedisError):
            client.get("kept")
        server.start()
        server.freeze()
        with pytest.raises(RedisError):
            client.get("kept")
        server.thaw()
        assert client.get("kept") == b"7"
        client.close()


def test_a_proxy_cuts_connections_to_postgresql(
    postgresql_server: PostgreSQL, behind_proxy: Callable[[int], Proxy]
) -> None:
    proxy = behind_proxy(postgresql_server.port)
    url = postgresql_server.url(port=proxy.port).replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1")
        assert proxy.cut() == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    proxy.refusing = True
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    proxy.refusing = False
    psycopg.connect(url).close()


def test_a_proxy_delays_and_swallows(redis_server: Redis, behind_proxy: Callable[[int], Proxy]) -> None:
    proxy = behind_proxy(redis_server.port)
    client = _client(proxy.port)
    client.ping()
    proxy.delay = 0.2
    started = time.monotonic()
    client.ping()
    assert time.monotonic() - started > 0.35
    proxy.delay, proxy.silent = 0.0, True
    with pytest.raises(RedisError):
        client.ping()
    proxy.silent = False
    client.ping()
    client.close()


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (403, "AccessDenied")])
def test_s3_refuses_writes_and_still_reads(
    s3_server: S3, behind_proxy: Callable[[int], Proxy], status: int, code: str
) -> None:
    proxy = behind_proxy(s3_server.port)
    client = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint(port=proxy.port),
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        region_name=REGION,
        config=Config(retries={"max_attempts": 0}),
    )
    client.put_object(Bucket=BUCKET, Key=f"kept-{status}", Body=b"x" * 300_000)
    proxy.answer_writes = status
    with pytest.raises(ClientError) as refused:
        client.put_object(Bucket=BUCKET, Key=f"lost-{status}", Body=b"x" * 300_000)
    assert refused.value.response["Error"]["Code"] == code
    assert proxy.refused == 1
    assert len(client.get_object(Bucket=BUCKET, Key=f"kept-{status}")["Body"].read()) == 300_000
    proxy.answer_writes = None
    client.put_object(Bucket=BUCKET, Key=f"lost-{status}", Body=b"y")
    client.close()


def test_nobody_listens_on_a_free_port() -> None:
    port = processes.free_port()
    assert not processes.accepts(port)
    with socket.create_server(("127.0.0.1", port)):
        assert processes.accepts(port)


def _client(port: int) -> RedisClient:
    """One that tries once."""
    return RedisClient(port=port, socket_timeout=1, retry=Retry(NoBackoff(), 0))
