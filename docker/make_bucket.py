"""``python docker/make_bucket.py``: make the bucket that ``TUNESMITH_BLOB_URL`` names, unless it is there."""

from __future__ import annotations

import sys

from botocore.exceptions import BotoCoreError, ClientError

from domain import errors
from process.refusing import refuse
from storage.blobs import s3, stores
from storage.settings import StorageSettings

_THERE = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def main() -> int:
    try:
        settings = StorageSettings()
        location = stores.parse_url(settings.blob_url, home=settings.home)
        if not isinstance(location, stores.S3Location):
            raise errors.ConfigurationError("TUNESMITH_BLOB_URL names no bucket", hint="It looks like s3://bucket/….")
        key, secret = settings.blob_access_key, settings.blob_secret_key
        pair = (key.get_secret_value(), secret.get_secret_value()) if key and secret else None
        client = s3.make_client(location, pair)
        try:
            client.create_bucket(Bucket=location.bucket)
        except ClientError as error:
            if error.response["Error"]["Code"] not in _THERE:
                raise errors.BlobStoreRefused(f"cannot create the bucket: {error}") from error
        except BotoCoreError as error:
            raise errors.BlobStoreUnavailable(f"the blob store does not respond: {error}") from error
        finally:
            client.close()
    except errors.TunesmithError as error:
        return refuse(error)
    sys.stderr.write(f"the bucket {location.bucket} exists\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
