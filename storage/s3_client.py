"""boto3's client as the blob store uses it, and what it raises as our errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
)

from domain import errors
from storage.blob_urls import S3Location

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_CONNECT_SECONDS, _READ_SECONDS = 5, 60
_ATTEMPTS = 4
"""Of each request, with growing pauses between: some seconds in all. What is to outlast more waits by itself."""
_CONNECTIONS = 40
"""No fewer than threads of the API that may send bundles at once, or they would wait for each other."""

_MISSING = ("404", "NoSuchKey", "NotFound")
_TAKEN = ("PreconditionFailed", "412", "ConditionalRequestConflict")
_REFUSED_STATUSES = (301, 307, 400, 401, 403, 404)
_FULL_CODES = ("InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "EntityTooLarge")


def make(location: S3Location, credentials: tuple[str, str] | None) -> S3Client:
    """``credentials``: access key and secret; None to look for them as boto3 does. Raises ConfigurationError."""
    key, secret = credentials or (None, None)
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        max_pool_connections=_CONNECTIONS,
        tcp_keepalive=True,
        # We send a sha256 of our own, which needs no trailer: not every store knows those.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if location.path_style else "auto"},
    )
    try:
        return boto3.session.Session().client(
            "s3",
            endpoint_url=location.endpoint,
            # Every store needs one to sign with; those that are not Amazon's mostly take this one.
            region_name=location.region or boto3.session.Session().region_name or "us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        raise errors.ConfigurationError(f"the S3 client cannot be made: {error}") from error


def is_missing(error: ClientError) -> bool:
    """Whether there is no such key; HEAD says the same of a bucket that is not there."""
    return error.response.get("Error", {}).get("Code") in _MISSING


def is_taken(error: ClientError) -> bool:
    """Whether there is such a key already, or another request makes it right now."""
    return error.response.get("Error", {}).get("Code") in _TAKEN


def lacks_conditions(error: ClientError) -> bool:
    """Whether the store is one that knows no conditional writes."""
    return error.response.get("Error", {}).get("Code") == "NotImplemented"


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Raises BlobStoreUnavailable, whose message names no host: callers of the API see it."""
    try:
        yield
    except ClientError as error:
        raise _of_answer(error) from error
    except (NoCredentialsError, PartialCredentialsError, NoAuthTokenError) as error:
        raise errors.BlobStoreRefused("there are no credentials for the blob store") from error
    except BotoCoreError as error:
        raise errors.BlobStoreUnavailable(f"the blob store does not answer ({type(error).__name__})") from error


def _of_answer(error: ClientError) -> errors.BlobStoreUnavailable:
    code = str(error.response.get("Error", {}).get("Code", "unknown"))[:80]
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    details = {"store_code": code, "store_status": status}
    if code in _FULL_CODES or status == 507:
        return errors.BlobStoreFull(f"the blob store has no space left ({code})", details=details)
    if code == "NoSuchBucket":
        return errors.BlobStoreRefused("the blob store has no such bucket", details=details)
    # Asked for less, and checksums that differ, are worth another try; so is a server that fails.
    if status in _REFUSED_STATUSES and code not in ("RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch"):
        return errors.BlobStoreRefused(f"the blob store refuses ({status} {code})", details=details)
    return errors.BlobStoreUnavailable(f"the blob store fails ({status} {code})", details=details)
