"""The client, imported when a command needs it, and how its work shows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunesmith.client import Client

_WORTH_SHOWING_BYTES = 8 * 1000 * 1000


def client() -> Client:
    """Raises ServerUnreachable when no server is known."""
    from tunesmith.client import Client

    return Client()


def upload_progress(file: Path) -> Callable[[int, int], None] | None:
    """Shows how much of a large file is sent, on a terminal."""
    if not sys.stderr.isatty() or not file.is_file() or file.stat().st_size < _WORTH_SHOWING_BYTES:
        return None

    def show(sent: int, total: int) -> None:
        sys.stderr.write(f"\ruploading {file.name[:30]}  {100 * sent // total} %" + ("\n" if sent == total else ""))
        sys.stderr.flush()

    return show
