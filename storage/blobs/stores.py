"""Selection of the blob store by the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from domain import errors
from domain.blobs import BlobStore
from process.homes import making
from storage.blobs.cache import BlobCache
from storage.blobs.local import LocalBlobStore
from storage.settings import StorageSettings


def open_store(settings: StorageSettings) -> BlobStore:
    """Create the configured blob store without connecting to it; see ``check``. Raises ConfigurationError."""
    location = parse_url(settings.blob_url, home=settings.home)
    if isinstance(location, Path):
        with making(location):
            return LocalBlobStore(location)
    # Importing boto3 takes a third of a second.
    from storage.blobs import s3
    from storage.blobs.s3 import S3BlobStore

    key, secret = settings.blob_access_key, settings.blob_secret_key
    if (key is None) != (secret is None):
        raise errors.ConfigurationError(
            "only one of TUNESMITH_BLOB_ACCESS_KEY and TUNESMITH_BLOB_SECRET_KEY is set",
            hint="Set both, or neither to use boto3's own credentials (AWS_* variables and files).",
        )
    credentials = (key.get_secret_value(), secret.get_secret_value()) if key and secret else None
    with making(settings.blob_cache) as cache_folder:
        cache = BlobCache(cache_folder, limit_bytes=settings.blob_cache_mb * 1024**2)
    return S3BlobStore(s3.make_client(location, credentials), location, cache)


def folder(settings: StorageSettings) -> Path:
    """Return the local folder of blobs: the store itself, or its cache. Raises ConfigurationError."""
    location = parse_url(settings.blob_url, home=settings.home)
    return location if isinstance(location, Path) else settings.blob_cache


_HINT = "Write TUNESMITH_BLOB_URL as s3://bucket/prefix?endpoint=https://s3.example.com&region=eu-west-1&path_style=1."
_OPTIONS = ("endpoint", "region", "path_style")
_YES_OR_NO = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True, kw_only=True)
class S3Location:
    bucket: str
    prefix: str = ""
    """Prefix of all keys: empty, or ending with a slash."""
    endpoint: str | None = None
    """None for Amazon's endpoint of the region."""
    region: str | None = None
    """None for the region of AWS_REGION or boto3's configuration."""
    path_style: bool = False
    """Whether the bucket is part of the path instead of the host name."""


def parse_url(url: str, *, home: Path) -> Path | S3Location:
    """Parse the URL of a store: a folder or a location in a bucket; empty means the folder in the home folder.

    Raises ConfigurationError.
    """
    if not url:
        return home / "blobs"
    try:
        parts = urlsplit(url)
    except ValueError:
        _refuse("invalid URL")
    if parts.scheme not in _KINDS:
        _refuse(f"unsupported scheme {parts.scheme!r}" if parts.scheme else "it must start with s3:// or file://")
    return _KINDS[parts.scheme](parts)


def _folder(parts: SplitResult) -> Path:
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        _refuse("a folder must be written file:///absolute/path")
    return Path(unquote(parts.path))


def _s3(parts: SplitResult) -> S3Location:
    if not parts.netloc or "@" in parts.netloc:
        # Text before an @ may be a secret and is not repeated.
        _refuse("the bucket is missing or has credentials, which belong in their own settings")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown or parts.fragment:
        _refuse(f"it does not support {', '.join(unknown) or 'a fragment'}, only {', '.join(_OPTIONS)}")
    endpoint = options.get("endpoint") or None
    if endpoint and (urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname):
        _refuse("its endpoint is not an http:// or https:// URL")
    path_style = options.get("path_style", "0").lower()
    if path_style not in _YES_OR_NO:
        _refuse("its path_style must be 1 or 0")
    prefix = unquote(parts.path).strip("/")
    return S3Location(
        bucket=parts.netloc,
        prefix=f"{prefix}/" if prefix else "",
        endpoint=endpoint,
        region=options.get("region") or None,
        path_style=_YES_OR_NO[path_style],
    )


_KINDS: dict[str, Callable[[SplitResult], Path | S3Location]] = {"file": _folder, "s3": _s3}


def _refuse(why: str) -> NoReturn:
    raise errors.ConfigurationError(f"TUNESMITH_BLOB_URL: {why}", hint=_HINT)
