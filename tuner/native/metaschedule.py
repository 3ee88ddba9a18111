"""MetaSchedule records: two files, workloads and records that refer to them by index, as in its ``JSONDatabase``.

A record is stored with its workload's key, the structural hash, instead of the index; the rest of its line is kept
verbatim, digit for digit.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import IO, Any, BinaryIO

from domain import errors
from tuner.native import targets
from tuner.native.lines import NativeRecord, Refused, digest, expect, is_list, key, latencies, parse
from tunesmith import archives
from tunesmith.archives import Member

WORKLOADS_FILE = "database_workload.json"
RECORDS_FILE = "database_tuning_record.json"
_LENGTH_BYTES = 8
_LOADED = frozenset({"ffi.Module", "ffi.Function", "ffi.OpaquePyObject", "runtime.Module", "ir.EnvFunc"})
"""Objects in TVM's JSON that are programs: compiled modules, and functions by name."""


def read_workload(line: str) -> tuple[str, str]:
    """Return the key and the definition, which is the line itself. Raises Refused."""
    row = parse(line)
    expect(is_list(row, 2) and all(isinstance(part, str) for part in row), "not a workload of MetaSchedule")
    workload_key, module = row
    expect(workload_key.isascii() and workload_key.isdecimal(), "its structural hash is not a number")
    try:
        content = base64.b64decode(module, validate=True)
    except ValueError as error:
        raise Refused("its module is not base64") from error
    expect(bool(content), "its module is empty")
    _check_objects(content)
    return key(workload_key), line


def _check_objects(content: bytes) -> None:
    """Check a module: its length, followed by TVM's JSON, a list of nodes. Raises Refused."""
    # Not in the length, which may have a byte of that value.
    start = content.find(b"{", _LENGTH_BYTES)
    if start < 0:
        # TVM could not load it either.
        return
    try:
        graph = json.loads(content[start:])
        kinds = {node["type"] for node in graph["nodes"]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused("its module is not TVM's JSON") from error
    programs = sorted(kinds & _LOADED)
    expect(not programs, f"its module contains a {', '.join(programs)}, which TVM would load as a program")


def with_key(line: str, workload_keys: Sequence[str | None]) -> str:
    """Convert a line of the records file to the stored form. Raises Refused."""
    row = parse(line)
    expect(is_list(row, 2), "not a record of MetaSchedule")
    position = row[0]
    is_known = isinstance(position, int) and not isinstance(position, bool) and 0 <= position < len(workload_keys)
    expect(is_known, "its workload is not in the other file")
    workload_key = workload_keys[position]
    if workload_key is None:
        raise Refused("its workload was rejected")
    return f"[{json.dumps(workload_key)},{_body(line)}"


def with_positions(lines: Iterable[str], positions: Mapping[str, int]) -> Iterator[str]:
    """Yield stored lines as lines of a records file; lines of workloads without a position are left out."""
    for line in lines:
        position = positions.get(key_of(line))
        if position is not None:
            yield f"[{position},{_body(line)}"


def key_of(line: str) -> str:
    """Return the workload key of a stored line."""
    workload_key, _ = json.JSONDecoder().raw_decode(line, line.index("[") + 1)
    return str(workload_key)


def read(line: str) -> NativeRecord:
    """Parse a stored line. Raises Refused."""
    row = parse(line)
    expect(is_list(row, 2) and is_list(row[1], 4), "not a record of MetaSchedule")
    workload_key, (trace, seconds, target, arguments) = row
    expect(is_list(trace, 2) and all(isinstance(part, list) for part in trace), "its trace is not MetaSchedule's")
    expect(all(is_list(instruction, 4) for instruction in trace[0]), "its trace is not MetaSchedule's")
    expect(isinstance(arguments, list), "its arguments are not MetaSchedule's")
    found, error = latencies(seconds)
    text, threads = targets.read(target)
    return NativeRecord(
        workload_key=key(workload_key),
        target=text,
        threads=threads,
        schedule=line,
        schedule_digest=digest([workload_key, _with_truth(trace)]),
        latencies=found,
        error=error,
        finished_at=None,
        tvm=None,
    )


def _with_truth(trace: list[Any]) -> list[Any]:
    """Restore the booleans of an annotation: ``JSONDatabase`` writes true as 1, while the engine distinguishes them."""
    for instruction in trace[0]:
        if instruction[0] == "Annotate" and instruction[2] == ["meta_schedule.layout_rewrite_preproc"]:
            inputs = instruction[1]
            expect(isinstance(inputs, list) and len(inputs) > 1, "its trace is not MetaSchedule's")
            inputs[1] = True if inputs[1] == 1 else inputs[1]
    return trace


def _body(line: str) -> str:
    """Return the text after the first element and its comma, including the closing bracket."""
    start = line.index("[") + 1
    while line[start].isspace():
        start += 1
    _, end = json.JSONDecoder().raw_decode(line, start)
    return line[line.index(",", end) + 1 :].strip()


_FILES = (WORKLOADS_FILE, RECORDS_FILE)


def opened(file: BinaryIO) -> tuple[BinaryIO, BinaryIO]:
    """Return readers of the workload file and the record file in an archive. Raises InvalidRequest."""
    try:
        found = _members(archives.members(file))
    except archives.InvalidArchive as error:
        raise _invalid(f"not a tar of {' and '.join(_FILES)}: {error}") from error
    return archives.content(file, found[WORKLOADS_FILE]), archives.content(file, found[RECORDS_FILE])


def write(file: IO[bytes], workloads: IO[bytes], records: IO[bytes]) -> None:
    """Write an archive of both files, each read from start to end."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in zip(_FILES, (workloads, records), strict=True):
            member = tarfile.TarInfo(name)
            member.mode = 0o644
            member.size = content.seek(0, io.SEEK_END)
            content.seek(0)
            archive.addfile(member, content)


def _members(members: Iterable[Member]) -> dict[str, Member]:
    found: dict[str, Member] = {}
    for member in members:
        if member.is_folder:
            continue
        name = PurePosixPath(member.name).name
        if name not in _FILES or name in found:
            raise _invalid(
                f"the tar contains {member.name[:80]!r}; it may contain only {' and '.join(_FILES)}, once each"
            )
        found[name] = member
    for name in _FILES:
        if name not in found:
            raise _invalid(f"the tar lacks {name}")
    return found


def _invalid(message: str) -> errors.InvalidRequest:
    hint = f"Create it with: tar cf records.tar -C WORK_DIR {' '.join(_FILES)}"
    return errors.InvalidRequest(message, hint=hint)
