"""``./run docs``: the tables of codes in ``docs/reference/errors.md``, from the errors' own declarations."""

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
    """The document with its two tables as the code declares them; its prose is left alone."""
    for head, rows in (("| code | status | hint |", _served()), ("| code | exit status | means |", _local())):
        table = "\n".join([head, "|---|---|---|", *rows]) + "\n"
        before, _, rest = document.partition(f"{head}\n")
        after = re.sub(r"\A(\|.*\n)+", "", rest)
        document = before + table + after
    return document


def _served() -> Iterator[str]:
    for kind in served.every():
        hint = f" {kind.default_hint}" if kind.default_hint else ""
        yield f"| `{kind.code}` | {kind.status} |{hint} |"


def _local() -> Iterator[str]:
    for code, (status, meaning) in local.OWN_CODES.items():
        yield f"| `{code}` | {status} | {meaning} |"


if __name__ == "__main__":
    sys.exit(main())
