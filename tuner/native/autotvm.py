"""AutoTVM records: one JSON object per line, as ``tvm.autotvm.record.encode`` writes it."""

from __future__ import annotations

import json

from tuner.native import targets
from tuner.native.lines import NativeRecord, digest, expect, is_list, key, moment, outcome, parse

_VERSION = 0.2
_BLOCKS = ("tile_ic", "tile_oc")
"""Knobs of the blocked templates."""


def read(line: str) -> NativeRecord:
    """Parse a line. Raises Refused."""
    row = parse(line)
    expect(isinstance(row, dict) and {"input", "config", "result"} <= set(row), "not a line of AutoTVM")
    expect(row.get("version") == _VERSION, f"its format is not AutoTVM's {_VERSION}")
    expect(is_list(row["input"], 4) and is_list(row["result"], 4), "not a line of AutoTVM")
    target, name, arguments, keywords = row["input"]
    expect(isinstance(target, str) and isinstance(name, str) and bool(name), "not a line of AutoTVM")
    expect(isinstance(arguments, list) and keywords == {}, "its task's arguments are not AutoTVM's")
    config = row["config"]
    expect(isinstance(config, dict) and _are_entities(config.get("entity")), "its configuration is not AutoTVM's")
    costs, error_number, _, finished_at = row["result"]
    latencies, error = outcome(costs, error_number)
    text, threads = targets.read(target)
    tvm = row.get("tvm_version")
    return NativeRecord(
        workload_key=key(json.dumps([name, arguments], separators=(",", ":"))),
        target=text,
        threads=threads,
        schedule=line,
        schedule_digest=digest([name, arguments, config["entity"]]),
        latencies=latencies,
        error=error,
        finished_at=moment(finished_at),
        tvm=tvm if isinstance(tvm, str) else None,
    )


def _are_entities(entities: object) -> bool:
    """Return whether ``entities`` are ``[[knob, kind, value], …]``, with a fourth element for reordering."""
    return isinstance(entities, list) and all(
        isinstance(entity, list) and len(entity) in (3, 4) and all(isinstance(part, str) for part in entity[:2])
        for entity in entities
    )


def blocks(line: str) -> tuple[int, ...]:
    """Return the sizes of the channel blocks that a stored record's schedule reads and writes.

    Empty for templates without blocks.
    """
    entities = {knob: value for knob, _, value, *_ in json.loads(line)["config"]["entity"]}
    return tuple(int(entities[knob][-1]) for knob in _BLOCKS if knob in entities)
