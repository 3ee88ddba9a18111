"""The blob store that the settings name; the one place that knows which kinds there are."""

from __future__ import annotations

from pathlib import Path

from domain import errors
from domain.blobs import BlobStore
from storage import blob_urls
from storage.blob_cache import BlobCache
from storage.blobs import LocalBlobStore
from storage.folders import making
from storage.settings import StorageSettings


def open_store(settings: StorageSettings) -> BlobStore:
    """Asks nobody whether the store is there: ``check`` does. Raises ConfigurationError."""
    location = blob_urls.parse(settings.blob_url, home=settings.home)
    if isinstance(location, Path):
        with making(location):
            return LocalBlobStore(location)
    # boto3 takes a third of a second to import.
    from storage import s3_client
    from storage.blobs_s3 import S3BlobStore

    key, secret = settings.blob_access_key, settings.blob_secret_key
    if (key is None) != (secret is None):
        raise errors.ConfigurationError(
            "one of TUNESMITH_BLOB_ACCESS_KEY and TUNESMITH_BLOB_SECRET_KEY is set, the other is not",
            hint="Set both, or neither: credentials are then looked for as boto3 does, in AWS_* variables and files.",
        )
    credentials = (key.get_secret_value(), secret.get_secret_value()) if key and secret else None
    with making(settings.blob_cache) as cache_folder:
        cache = BlobCache(cache_folder, limit_bytes=settings.blob_cache_mb * 1024**2)
    return S3BlobStore(s3_client.make(location, credentials), location, cache)


def folder(settings: StorageSettings) -> Path:
    """Where bytes lie on this host: the store's own folder, or that of copies. Raises ConfigurationError."""
    location = blob_urls.parse(settings.blob_url, home=settings.home)
    return location if isinstance(location, Path) else settings.blob_cache
