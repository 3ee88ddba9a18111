"""Which store TUNESMITH_BLOB_URL names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from domain import errors
from storage.blobs import stores
from storage.blobs.local import LocalBlobStore
from storage.blobs.stores import S3Location
from storage.settings import StorageSettings


def test_without_a_url_blobs_lie_under_the_home_folder(tmp_path: Path) -> None:
    store = stores.open_store(StorageSettings(home=tmp_path))
    assert isinstance(store, LocalBlobStore)
    assert store.path(store.put([b"bytes"]).digest).is_relative_to(tmp_path / "blobs")


def test_a_folder_elsewhere(tmp_path: Path) -> None:
    store = stores.open_store(StorageSettings(home=tmp_path, blob_url=f"file://{tmp_path}/more%20room"))
    assert isinstance(store, LocalBlobStore)
    assert store.path(store.put([b"bytes"]).digest).is_relative_to(tmp_path / "more room")


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("s3://bucket", S3Location(bucket="bucket")),
        ("s3://bucket/", S3Location(bucket="bucket")),
        ("s3://bucket/some/where/", S3Location(bucket="bucket", prefix="some/where/")),
        ("s3://bucket?region=eu-west-1", S3Location(bucket="bucket", region="eu-west-1")),
        (
            "s3://b/p?endpoint=http://127.0.0.1:9000&path_style=1",
            S3Location(bucket="b", prefix="p/", endpoint="http://127.0.0.1:9000", path_style=True),
        ),
    ],
)
def test_a_place_in_a_bucket(url: str, location: S3Location) -> None:
    assert stores.parse_url(url, home=Path("/home")) == location


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("/plain/path", "must start with"),
        ("ftp://host/x", "'ftp'"),
        ("file://other-host/x", "file:///absolute"),
        ("file:relative", "file:///absolute"),
        ("s3:///x", "bucket is missing"),
        ("s3://key:secret@bucket/x", "which belong in their own settings"),
        ("s3://bucket?acl=public", "does not support acl"),
        ("s3://bucket#x", "fragment"),
        ("s3://bucket?endpoint=minio:9000", "endpoint"),
        ("s3://bucket?path_style=maybe", "path_style"),
        ("s3://[bad", "invalid URL"),
    ],
)
def test_a_url_that_names_no_store(url: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match=why) as raised:
        stores.open_store(StorageSettings(home=tmp_path, blob_url=url))
    assert "secret" not in raised.value.message
    assert "TUNESMITH_BLOB_URL" in (raised.value.hint or "")


def test_half_of_the_credentials(tmp_path: Path) -> None:
    settings = StorageSettings(home=tmp_path, blob_url="s3://bucket", blob_access_key="key")
    with pytest.raises(errors.ConfigurationError, match="only one of"):
        stores.open_store(settings)


def test_the_secret_is_told_to_nobody(tmp_path: Path) -> None:
    settings = StorageSettings(home=tmp_path, blob_access_key="key-id", blob_secret_key="very-secret")
    assert "very-secret" not in repr(settings)


@pytest.mark.contract
def test_files_need_no_boto3() -> None:
    program = "import sys; from storage.blobs import local, stores; sys.exit('boto3' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])
