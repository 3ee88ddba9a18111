"""``./run docs``: tables of codes in ``docs/reference/errors.md``, generated from the error classes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from domain import errors as served
from tunesmith import errors as local


def main() -> int:
    path = Path(sys.argv[1])
    path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def renewed(document: str) -> str:
    """Return the document with both tables regenerated; its prose is unchanged."""
    for head, rows in (("| status | codes |", _served()), ("| code | exit status | meaning |", _local())):
        table = "\n".join([head, "|---" * head.count(" | ") + "|---|", *rows]) + "\n"
        before, _, rest = document.partition(f"{head}\n")
        after = re.sub(r"\A(\|.*\n)+", "", rest)
        document = before + table + after
    return document


def _served() -> Iterator[str]:
    codes: dict[int, list[str]] = {}
    for kind in served.every():
        codes.setdefault(kind.status, []).append(f"`{kind.code}`")
    for status in sorted(codes):
        yield f"| {status} | {', '.join(codes[status])} |"


def _local() -> Iterator[str]:
    for code, (status, meaning) in local.OWN_CODES.items():
        yield f"| `{code}` | {status} | {meaning} |"


if __name__ == "__main__":
    sys.exit(main())
