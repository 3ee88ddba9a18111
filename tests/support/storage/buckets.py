"""A bucket of a real S3 server, and blob stores in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.blobs import stores
from storage.blobs.s3 import S3BlobStore
from storage.settings import StorageSettings
from tests.support.servers import processes
from tests.support.servers.s3 import KEY_ID, REGION, S3, SECRET
from tuner.host.catalogue import ROOT


def environment(settings: StorageSettings) -> dict[str, str]:
    """Of a process with these settings, whose blobs are in a bucket."""
    assert settings.blob_access_key is not None
    assert settings.blob_secret_key is not None
    return {
        **processes.clean_environment(),
        "PYTHONPATH": str(ROOT),
        "TUNESMITH_HOME": str(settings.home),
        "TUNESMITH_DATABASE_URL": settings.database_url,
        "TUNESMITH_BLOB_URL": settings.blob_url,
        "TUNESMITH_BLOB_ACCESS_KEY": settings.blob_access_key.get_secret_value(),
        "TUNESMITH_BLOB_SECRET_KEY": settings.blob_secret_key.get_secret_value(),
    }


@dataclass(frozen=True, kw_only=True)
class Bucket:
    server: S3
    name: str

    def url(self, *, port: int | None = None) -> str:
        endpoint = self.server.endpoint(port=port)
        return f"s3://{self.name}/a/prefix?endpoint={endpoint}&region={REGION}&path_style=1"

    def settings(self, home: Path, **others: Any) -> StorageSettings:
        keys = {"blob_access_key": KEY_ID, "blob_secret_key": SECRET}
        return StorageSettings(**{"home": home, "blob_url": self.url(), **keys, **others})

    def store(self, home: Path, **others: Any) -> S3BlobStore:
        """A store as the service opens it."""
        opened = stores.open_store(self.settings(home, **others))
        assert isinstance(opened, S3BlobStore)
        return opened

    def key(self, digest: str) -> str:
        return f"a/prefix/{digest[:2]}/{digest[2:]}"

    def keys(self) -> list[str]:
        found = self.server.client().list_objects_v2(Bucket=self.name)
        return [each["Key"] for each in found.get("Contents", [])]

    def overwrite(self, digest: str, content: bytes) -> None:
        """Put other bytes where those of the digest are, as another program does it."""
        self.server.client().put_object(Bucket=self.name, Key=self.key(digest), Body=content)

    def rot(self, digest: str, content: bytes) -> None:
        """Let the store itself have other bytes than it was given."""
        client, key = self.server.client(), self.key(digest)
        metadata = client.head_object(Bucket=self.name, Key=key)["Metadata"]
        client.put_object(Bucket=self.name, Key=key, Body=content, Metadata=metadata)

    def forbid(self, action: str) -> None:
        """Whoever asks is refused from now on, such as ``s3:PutObject``."""
        statement = {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": f"arn:aws:s3:::{self.name}/*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.server.client().put_bucket_policy(Bucket=self.name, Policy=policy)

    def uploads(self) -> list[str]:
        """Those of many parts that nobody has completed."""
        found = self.server.client().list_multipart_uploads(Bucket=self.name)
        return [each["UploadId"] for each in found.get("Uploads", [])]
