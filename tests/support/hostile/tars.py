"""Archives, and some made to stop or crash whoever opens them with ``tarfile``."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

_BLOCK = 512


def packed(files: Mapping[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def hostile() -> dict[str, bytes]:
    """By name: ``tarfile`` needs over a minute for the digits, and more stack than there is for the chain."""
    return {"digits": _extension(b"1" * 200_000), "chain": _extension(b"12 a=bcdefg\n") * 3000}


def _extension(content: bytes) -> bytes:
    member = tarfile.TarInfo("extension")
    member.type, member.size = tarfile.XHDTYPE, len(content)
    return member.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % _BLOCK)
