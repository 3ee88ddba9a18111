"""The browser that the tests drive: Debian's, or the one that ``TUNESMITH_CHROMIUM`` names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",  # tests run as root in containers; every page is the service's own
    "--disable-quic",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"


def find() -> str | None:
    named = os.environ.get("TUNESMITH_CHROMIUM")
    if named:
        return shutil.which(named)
    return next((found for name in _NAMES if (found := shutil.which(name))), None)
