"""A blob as a response: strong ETag, conditional and partial requests (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from fastapi import HTTPException, Request, Response
from fastapi.responses import StreamingResponse

_CHUNK = 256 * 1024
_ONE_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def respond(request: Request, file: BinaryIO, *, digest: str, size: int, file_name: str) -> Response:
    """Closes ``file`` in the end. Several ranges at once are answered with the whole, as the RFC allows."""
    etag = f'"{digest}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f'attachment; filename="{file_name}"',
    }
    if _matches(request.headers.get("if-none-match", ""), etag):
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
    return StreamingResponse(
        _read(file, first, last), status_code=206 if part else 200, headers=headers, media_type="application/x-tar"
    )


def _matches(header: str, etag: str) -> bool:
    """If-None-Match compares weakly: W/ makes no difference."""
    listed = [entry.strip().removeprefix("W/") for entry in header.split(",")]
    return etag in listed or header.strip() == "*"


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
    with file:
        file.seek(first)
        left = last - first + 1
        while left > 0 and (chunk := file.read(min(_CHUNK, left))):
            left -= len(chunk)
            yield chunk
