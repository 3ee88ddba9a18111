"""Parts: what a library of several sizes is linked from, in one file for each size.

The file is a tar of ``plan.json``, ``weights.bin``, the kernels' object files, and a digest of the others.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime.library import source
from tuner.engines.runtime.library.plan import Call, Convention, Kind, Plan, Tensor, Workspace
from tuner.engines.runtime.library.source import Facts

FILE = "model.part"
_PLAN, _WEIGHTS, _DIGEST = "plan.json", "weights.bin", "digest"
_VERSION = 1
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Part:
    plan: Plan
    objects: Sequence[Path]
    """The kernels' object files."""
    facts: Facts
    weight_bytes: int


def write(plan: Plan, objects: Sequence[Path], facts: Facts, path: Path) -> None:
    """Write a part. Equal arguments make equal files."""
    packed = source.weights(plan.constants)
    constants = [[offset, len(each)] for offset, each in zip(packed.offsets, plan.constants, strict=True)]
    document = {
        "version": _VERSION,
        "plan": {**asdict(replace(plan, constants=())), "constants": constants},
        "facts": asdict(facts),
    }
    content = json.dumps(document).encode()
    digest = hashlib.blake2b()
    # An earlier file may still be mapped.
    path.unlink(missing_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, _PLAN, len(content), [content], digest)
        _add(archive, _WEIGHTS, packed.size, packed.parts, digest)
        for number, each in enumerate(objects):
            _add(archive, _object(number), each.stat().st_size, _chunks(each), digest)
        _add(archive, _DIGEST, digest.digest_size, [digest.digest()], hashlib.blake2b())


def read(path: Path, folder: Path) -> Part:
    """Read a part, whose object files are copied to ``folder`` and whose constants are mapped from the file.

    Raises EngineFailure ``invalid_bundle`` for other and for damaged files.
    """
    try:
        return _read(path, folder)
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise EngineFailure("invalid_bundle", f"{path.name} is damaged, or no part of a library: {error}") from error


def _object(number: int) -> str:
    return f"kernels-{number}.o"


def _chunks(path: Path) -> Iterable[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _add(archive: tarfile.TarFile, name: str, size: int, content: Iterable[bytes | memoryview], digest: Any) -> None:
    """Add a file to an archive. ``tarfile`` itself adds files and whole byte strings alone."""
    member = tarfile.TarInfo(name)
    member.size = size
    archive.addfile(member, _Joined(content, digest))


class _Joined(io.RawIOBase):
    """A file of several byte strings, which are added to a digest as they are read."""

    def __init__(self, content: Iterable[bytes | memoryview], digest: Any) -> None:
        self._content = iter(content)
        self._digest = digest
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = bytearray()
        while len(found) < size:
            if not self._rest:
                following = next(self._content, None)
                if following is None:
                    break
                self._rest = memoryview(following)
            taken = self._rest[: size - len(found)]
            self._rest = self._rest[len(taken) :]
            found += taken
        self._digest.update(found)
        return bytes(found)


def _read(path: Path, folder: Path) -> Part:
    with path.open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        with tarfile.open(fileobj=file, mode="r:") as archive:
            members = [(each.name, mapped[each.offset_data : each.offset_data + each.size]) for each in archive]
    names = [name for name, _ in members]
    objects = [_object(number) for number in range(len(members) - 3)]
    if names != [_PLAN, _WEIGHTS, *objects, _DIGEST]:
        raise ValueError(f"its files are {', '.join(names)}")
    digest = hashlib.blake2b()
    for _, content in members[:-1]:
        digest.update(content)
    if digest.digest() != members[-1][1]:
        raise ValueError("its digest is another one")
    document = json.loads(bytes(members[0][1]))
    if document["version"] != _VERSION:
        raise ValueError(f"it has version {document['version']}, made by another release")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in members[2:-1]:
        (folder / name).write_bytes(content)
    facts = {**document["facts"], "features": tuple(document["facts"]["features"])}
    plan = _plan(document["plan"], members[1][1])
    return Part(
        plan=plan,
        objects=[folder / name for name in objects],
        facts=Facts(**facts),
        weight_bytes=len(members[1][1]),
    )


def _plan(document: Json, weights: memoryview) -> Plan:
    convention = Convention(document["convention"])
    tensors = [
        Tensor(
            **{**each, "shape": tuple(each["shape"]), "kind": Kind(each["kind"]), "open": tuple(each.get("open", ()))}
        )
        for each in document["tensors"]
    ]
    calls = [
        Call(**{**each, "arguments": tuple(each["arguments"]), "workspace": Workspace(**each["workspace"])})
        for each in document["calls"]
    ]
    return Plan(
        convention=convention,
        tensors=tensors,
        calls=calls,
        inputs=document["inputs"],
        outputs=document["outputs"],
        input_names=document["input_names"],
        output_names=document["output_names"],
        constants=[weights[offset : offset + size] for offset, size in document["constants"]],
        sizes=document.get("sizes", 0),
    )
