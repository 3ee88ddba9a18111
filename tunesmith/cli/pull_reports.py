"""What ``pull`` says of what it did, or would not do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tunesmith.cli import output

if TYPE_CHECKING:
    from tunesmith import errors
    from tunesmith.lockfile import Entry


def refused(error: errors.LockNotKept, *, as_json: bool) -> None:
    """The two sides, before the error itself is told."""
    from tunesmith.lockfile import Entry

    held, now = error.details.get("locked"), error.details.get("now")
    if as_json:
        output.document({"status": error.code, **error.details})
    elif held:
        _changes(Entry(**held), Entry(**now) if now else None)


def show(result: dict[str, Any], *, as_json: bool) -> None:
    from tunesmith.lockfile import Entry

    if as_json:
        output.document(result)
        return
    if result["previous"]:
        _changes(Entry(**result["previous"]), Entry(**result["locked"]))
    elif result["status"] == "unchanged":
        locked = result["locked"] or {"artifact": result["artifact"]["id"]}
        output.note(f"unchanged: {locked['artifact']} is there already, with the right digest")
    else:
        if result["why"]:
            output.note(result["why"])
        if result["artifact"]:
            output.note(result["artifact"]["report"]["summary"])
    faster = result.get("faster_elsewhere")
    if faster:
        output.note(
            f"{faster['id']} is faster, but by {faster['toolchain']} on {faster['device_key']}; --update takes it"
        )
    output.line(result["path"])


def _changes(held: Entry, now: Entry | None) -> None:
    from tunesmith import pulling

    slower = pulling.slower_by(held, now) if now else None
    for name, old, new in pulling.changes(held, now):
        said = f"  ({pulling.compared(slower)})" if name == "latency" and slower is not None else ""
        output.note(f"{name:<10} {old} → {new}{said}")
