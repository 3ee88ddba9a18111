"""The release, reported by the API and written into every bundle's manifest."""

from __future__ import annotations

VERSION = "0.1.0"
