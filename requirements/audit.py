"""``./run audit``: are there known vulnerabilities in what the requirement files pin?

Asks a service that speaks OSV's protocol (https://google.github.io/osv.dev/api/), by default osv.dev, for every
pinned package; TUNESMITH_AUDIT_URL names another one. Ends with 0 when nothing is known, 1 when something is, and 4
when nobody could be asked, which says nothing about the packages.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SERVICE = "https://api.osv.dev"
FOUND, NOT_ASKED = 1, 4
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_SECONDS = 30.0
_AT_ONCE = 500

Pin = tuple[str, str]


def files() -> list[Path]:
    return sorted([*ROOT.glob("requirements/*.txt"), *ROOT.glob("tuner/engines/*/requirements.txt")])


def pins(paths: Sequence[Path]) -> dict[Pin, list[str]]:
    """Name and version of each package, and the files that pin it."""
    found: dict[Pin, list[str]] = {}
    for path in paths:
        for name, version in _PINNED.findall(path.read_text()):
            found.setdefault((name.lower(), version), []).append(str(path.relative_to(ROOT)))
    return found


def known(service: str, wanted: Sequence[Pin]) -> Iterator[tuple[Pin, list[str]]]:
    """Ids of what is known of each, those without any left out. Raises OSError and ValueError."""
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in some]
        answer = _ask(f"{service.rstrip('/')}/v1/querybatch", {"queries": queries})
        results = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list) or len(results) != len(some):
            raise ValueError("the answer is not OSV's")
        for pin, result in zip(some, results, strict=True):
            ids = [str(one["id"]) for one in (result or {}).get("vulns", [])]
            if ids:
                yield pin, ids


def main() -> int:
    service = os.environ.get("TUNESMITH_AUDIT_URL", SERVICE)
    pinned = pins(files())
    try:
        found = list(known(service, list(pinned)))
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        sys.stderr.write(
            f"audit: NOT DONE: {service} could not be asked: {reason}\n"
            f"hint: nothing is known about the {len(pinned)} pinned packages; run this where {service} is reachable,"
            " or name a mirror in TUNESMITH_AUDIT_URL\n"
        )
        return NOT_ASKED
    for (name, version), ids in found:
        sys.stdout.write(f"{name} {version}: {', '.join(ids)} ({', '.join(pinned[name, version])})\n")
    sys.stderr.write(f"audit: {len(pinned)} pinned packages, known vulnerabilities in {len(found)}\n")
    return FOUND if found else 0


def _ask(url: str, body: dict[str, Any]) -> Any:
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url} is no http address")
    asked = urllib.request.Request(  # noqa: S310 - checked above
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=_SECONDS) as answer:  # noqa: S310 - checked above
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main())
