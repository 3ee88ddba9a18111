"""Static files under versioned URLs, which browsers may cache forever."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

_FOLDER = Path(__file__).parent / "static"
_A_YEAR = "public, max-age=31536000, immutable"
_LEAST_WORTH_COMPRESSING = 1024
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}

router = APIRouter(prefix="/static", include_in_schema=False)


@dataclass(frozen=True)
class Asset:
    content: bytes
    compressed: bytes | None
    media_type: str


def _load() -> dict[str, Asset]:
    files = sorted(path for path in _FOLDER.rglob("*") if path.is_file())
    return {path.relative_to(_FOLDER).as_posix(): _asset(path) for path in files}


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    worth = len(content) > _LEAST_WORTH_COMPRESSING
    return Asset(content, gzip.compress(content, mtime=0) if worth else None, media_type)


def _digest(assets: dict[str, Asset]) -> str:
    digest = hashlib.sha256()
    for name, asset in assets.items():
        digest.update(name.encode() + b"\0" + hashlib.sha256(asset.content).digest())
    return digest.hexdigest()[:12]


_ASSETS = _load()
# One version for all files, as modules import each other by relative paths.
_VERSION = _digest(_ASSETS)


def url(name: str) -> str:
    """Return the URL of a file. Raises KeyError for a missing one, so that no page can refer to it."""
    if name not in _ASSETS:
        raise KeyError(name)
    return f"/static/{_VERSION}/{name}"


@router.get("/{version}/{name:path}")
def asset(request: Request, version: str, name: str) -> Response:
    """Serve a file. A request for another version, from a page of an older release, gets the current file, uncached."""
    found = _ASSETS.get(name)
    if found is None:
        raise HTTPException(404)
    headers = {"Cache-Control": _A_YEAR if version == _VERSION else "no-cache", "Vary": "Accept-Encoding"}
    content = found.content
    if found.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["Content-Encoding"] = found.compressed, "gzip"
    return Response(content, headers=headers, media_type=found.media_type)
