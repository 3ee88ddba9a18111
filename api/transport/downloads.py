"""A blob as a response: strong ETag, conditional and partial requests (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from fastapi import HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.transport import etags

_CHUNK = 256 * 1024
_FOR_EVER = "private, max-age=31536000, immutable"
"""An address names the bytes' digest: there will never be others behind it."""
_ONE_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def respond(request: Request, file: BinaryIO, *, digest: str, size: int, file_name: str) -> Response:
    """Closes ``file`` in the end. Several ranges at once are answered with the whole, as the RFC allows."""
    etag = f'"{digest}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": _FOR_EVER,
        "Vary": "Authorization, Cookie",
        "Content-Disposition": f'attachment; filename="{file_name}"',
    }
    if etags.matches(request.headers.get("if-none-match", ""), etag):
        file.close()
        return Response(status_code=304, headers=headers)
    part = _range(request, etag, size)
    if part == ():
        file.close()
        raise HTTPException(
            416, f"the artifact has {size} bytes", headers={"Content-Range": f"bytes */{size}", "ETag": etag}
        )
    first, last = part or (0, size - 1)
    headers["Content-Length"] = str(last - first + 1)
    if part:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return _FilePart(file, first, last, status_code=206 if part else 200, headers=headers)


class _FilePart(StreamingResponse):
    """Closes the file whatever ends it: the last byte, a reader that went away, or a HEAD."""

    media_type = "application/x-tar"

    def __init__(self, file: BinaryIO, first: int, last: int, *, status_code: int, headers: dict[str, str]) -> None:
        super().__init__(_read(file, first, last), status_code=status_code, headers=headers)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


def _range(request: Request, etag: str, size: int) -> tuple[int, int] | tuple[()] | None:
    """First and last byte; None for the whole, and the empty tuple for a range that does not exist."""
    match = _ONE_RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if match is None or match.group(0) == "bytes=-" or request.headers.get("if-range", etag) != etag:
        return None
    first, last = match.groups()
    if not first:
        wanted = min(int(last), size)
        return (size - wanted, size - 1) if wanted else ()
    start, end = int(first), min(int(last or size), size - 1)
    if last and int(last) < start:
        return None
    return (start, end) if start < size else ()


def _read(file: BinaryIO, first: int, last: int) -> Iterator[bytes]:
    file.seek(first)
    left = last - first + 1
    while left > 0 and (chunk := file.read(min(_CHUNK, left))):
        left -= len(chunk)
        yield chunk
