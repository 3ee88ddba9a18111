"""Bundles: a tar of compiled files with manifest, evidence and a runnable example.

Equal files and facts give equal bytes, and so equal digests. Bundles may be untrusted: opening one checks paths, sizes,
and every file against the manifest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from pydantic import TypeAdapter

from domain import errors
from domain.artifacts import Report, Variant, Verification
from domain.profiles import Profile
from domain.sizes import Size
from tuner.results import bundle_texts, wheels
from tuner.results.manifest import FORMAT_VERSION, Manifest
from tunesmith import archives

__all__ = ["FILES", "Manifest", "evidence", "file_digest", "needed", "open_bundle", "read_manifest", "write"]

LIBRARY, OBJECTS, ARCHIVE = "mod.so", "mod.tar", "mod.a"
DESCRIPTION = "mod.json"
COMPILED = {"graph": (LIBRARY, DESCRIPTION, "mod.params"), "vm": (LIBRARY, DESCRIPTION)}
"""Files that each executor of TVM loads."""
PART_FORMAT, PART = "part", "model.part"
"""Format of bundles of one of several sizes, and its file, from which the library of all is linked."""
ADDED = {
    "shared": (),
    "wheel": (),
    "onnx": ("model.onnx", "libtunesmith_ort.so"),
    "static": ("libmodel.a", "libmodel.h"),
    "tvm": (),
    "object": (OBJECTS,),
    "system-lib": (ARCHIVE,),
    PART_FORMAT: (PART,),
}
"""Additional files of each format."""
FOR_TVM = ("tvm", "object", "system-lib")
"""Formats whose bundles have the files of TVM's executor beside a library, too."""
MODEL = "libmodel.so"
STANDALONE = (MODEL, "tunesmith.h")
"""The model as a library that needs no TVM, and its interface; only of builds that can do without."""
BUILD_FILES = ("tunesmith.hpp", "tunesmith-config.cmake", "tunesmith.pc")
"""Files of ``interface/``, the same in every bundle with such a library: for C++, CMake and pkg-config."""
WEIGHTS = "libmodel.weights"
"""The weights of ``libmodel.so``, if they are too large for it."""
NEEDS_TVM = "needs-tvm.txt"
"""File of an engine that says why there is no such library; it becomes ``Manifest.needs_tvm``."""
MANIFEST = "manifest.json"
EVIDENCE = "evidence.json"
RECORDS = "records.json"
README = "README.md"
EXAMPLE = "example.py"
ORIGINAL, PREPARED, REWRITTEN = "original.onnx", "prepared.onnx", "rewritten.onnx"
QUANTIZED = "quantized.onnx"
"""Models of bundles that run with another runtime: as uploaded, with fixed shapes and folded constants, and that with
operators replaced for compilers, or that in int8. A bundle has at most one."""
MODELS = frozenset({ORIGINAL, PREPARED, REWRITTEN, QUANTIZED})
TEXTS = frozenset({MANIFEST, EVIDENCE, RECORDS, README, EXAMPLE})
FILES = TEXTS.union(*COMPILED.values(), *ADDED.values(), STANDALONE, {WEIGHTS}, MODELS, BUILD_FILES)
"""All files that a bundle may contain, except a wheel."""

MAX_BYTES = 8 * 1024**3
_MAX_MANIFEST_BYTES = 4 * 1024**2
_CHUNK_BYTES = 1024 * 1024
_INTERFACE = Path(__file__).with_name("interface")
_MANIFESTS = TypeAdapter(Manifest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartEvidence:
    """One size of a bundle with several."""

    size: Size
    job: str
    """Id of the job that tuned it."""
    folder: Path
    """Its unpacked bundle."""


def needed(manifest: Manifest) -> frozenset[str]:
    """Return the required files of a bundle of this executor and format. Raises InvalidBundle for unknown ones.

    Beside a library of the model, a bundle needs what TVM loads only in formats for TVM. ``mod.so`` may be missing in
    some formats if nothing was linked for the target.
    """
    return _needed(manifest, has_library=MODEL in manifest.files)


def _needed(manifest: Manifest, *, has_library: bool) -> frozenset[str]:
    if manifest.executor not in COMPILED or manifest.format not in ADDED:
        raise errors.InvalidBundle(f"unsupported bundle: executor {manifest.executor!r}, format {manifest.format!r}")
    if manifest.runtime is not None and manifest.runtime.model not in MODELS:
        raise errors.InvalidBundle(f"unsupported bundle: the file of its runtime is {manifest.runtime.model[:80]!r}")
    model = {manifest.runtime.model} if manifest.runtime else ()
    files = TEXTS.union(ADDED[manifest.format], model)
    if has_library and manifest.format not in FOR_TVM:
        return files.union(STANDALONE)
    files = files.union(COMPILED[manifest.executor])
    return files if manifest.format in ("shared", "tvm") else files - {LIBRARY}


def write(
    path: Path,
    *,
    compiled: Path,
    manifest: Manifest,
    report: Report,
    profile: Profile | None = None,
    records: Sequence[str] = (),
    model: Path | None = None,
    ran_with_tvm: bool = False,
    parts: Sequence[PartEvidence] = (),
) -> Manifest:
    """Write the tar of a bundle, and return its manifest with the digests of the files and ``needs_tvm``.

    ``compiled`` is the output folder of an engine's ``compile``; ``records`` are native lines of the used schedules,
    empty for an untuned variant. ``model`` is that of ``manifest.runtime``, if that is set. ``ran_with_tvm``: whether
    TVM ran the build where it was measured, so that its files stay beside the library. ``parts``: of a library of
    several sizes. Raises FileNotFoundError for a missing file.
    """
    binaries = _needed(manifest, has_library=(compiled / MODEL).exists()) - TEXTS
    if ran_with_tvm:
        binaries |= set(COMPILED[manifest.executor]) - {LIBRARY}
    optional = (*STANDALONE, WEIGHTS, LIBRARY) if DESCRIPTION in binaries else (*STANDALONE, WEIGHTS)
    binaries |= {name for name in optional if (compiled / name).exists()}
    if manifest.format == "wheel":
        binaries |= {wheels.write(compiled, manifest)}
    if (compiled / NEEDS_TVM).exists():
        manifest = dataclasses.replace(manifest, needs_tvm=(compiled / NEEDS_TVM).read_text().strip())
    built_with = BUILD_FILES if MODEL in binaries else ()
    sources = {name: compiled / name for name in binaries}
    if manifest.runtime and model:
        sources[manifest.runtime.model] = model
    texts = {
        **{name: (_INTERFACE / name).read_bytes() for name in built_with},
        EVIDENCE: _json(evidence(report, profile) | _of_parts(parts, EVIDENCE)),
        RECORDS: _json({"tuner": manifest.tuner, "records": list(records)} | _of_parts(parts, RECORDS)),
        README: bundle_texts.readme(manifest, report, binaries.union(built_with)).encode(),
        EXAMPLE: bundle_texts.example(manifest, binaries).encode(),
    }
    digests = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    digests |= {name: file_digest(source) for name, source in sources.items()}
    complete = dataclasses.replace(manifest, files=dict(sorted(digests.items())))
    texts[MANIFEST] = _json(dataclasses.asdict(complete))
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(binaries | texts.keys()):
            if name in texts:
                archive.addfile(_member(name, len(texts[name])), io.BytesIO(texts[name]))
            else:
                with sources[name].open("rb") as file:
                    archive.addfile(_member(name, sources[name].stat().st_size), file)
    return complete


def _of_parts(parts: Sequence[PartEvidence], name: str) -> dict[str, Any]:
    """What the parts' own bundles have in the JSON file of that name; nothing for a bundle of one size."""
    found = [
        {**dataclasses.asdict(part.size), "job": part.job, **json.loads((part.folder / name).read_text())}
        for part in parts
    ]
    return {"sizes": found} if found else {}


def open_bundle(path: Path, into: Path) -> Manifest:
    """Unpack a bundle into the folder ``into`` and verify its files. Raises InvalidBundle.

    Accepts only plain files with known, unique names: no folders, links or devices.
    """
    into.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("rb") as file:
            unpacked = _unpack(file, into)
    except (archives.InvalidArchive, OSError) as error:
        raise errors.InvalidBundle(f"not a bundle: {error}") from error
    manifest = read_manifest(into)
    for name in sorted((needed(manifest) | manifest.files.keys() | unpacked) - {MANIFEST}):
        if name not in unpacked:
            raise errors.InvalidBundle(f"the bundle lacks {name}")
        if file_digest(into / name) != manifest.files.get(name):
            raise errors.InvalidBundle(f"{name} does not match the manifest")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an unpacked bundle. Raises InvalidBundle."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            data = json.loads(file.read(_MAX_MANIFEST_BYTES))
        version = data.get("format_version")
        if version != FORMAT_VERSION:
            raise errors.InvalidBundle(
                f"the bundle has format {version!r}; this release reads {FORMAT_VERSION}",
                hint="Use the release that wrote it, or tune the model again.",
            )
        return _MANIFESTS.validate_python(data)
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise errors.InvalidBundle(f"cannot read the bundle's manifest: {error}") from error


def evidence(report: Report, profile: Profile | None = None) -> dict[str, Any]:
    """Return the report and the profile as in ``evidence.json``; times are in seconds."""
    return {
        "published": str(report.published),
        "summary": report.summary,
        "speedup_over_untuned": report.speedup_over_untuned,
        "speedup_over_reference": report.speedup_over_reference,
        "runtime": str(report.runtime),
        "runtime_variant": str(report.fastest),
        "runtime_version": report.runtime_version,
        "runtime_model": report.runtime_model,
        "runtime_precision": report.runtime_precision,
        "runtime_options": report.runtime_options,
        "runtime_speedup_over_untuned": report.runtime_speedup_over_untuned,
        "benchmark": {str(variant): dataclasses.asdict(timing) for variant, timing in report.timings.items()},
        "verification": {
            str(variant): _verification(verification) for variant, verification in report.verifications.items()
        },
        "reference": str(Variant.REFERENCE),
        "compared_with": report.compared_with,
        "engines": {str(variant): toolchain for variant, toolchain in report.engines.items()},
        "choice": list(report.choice),
        "precision": report.precision,
        "portfolio": [dataclasses.asdict(contender) for contender in report.portfolio],
        "conditions": dataclasses.asdict(report.conditions) if report.conditions else None,
        "emulator": report.emulator,
        "format_verification": _format_verification(report),
        "data": dataclasses.asdict(report.data) if report.data else None,
        "failed_tasks": [dataclasses.asdict(task) for task in report.failed_tasks],
        "profile": dataclasses.asdict(profile) if profile else None,
    }


def _format_verification(report: Report) -> dict[str, Any] | None:
    found = report.format_verification
    if found is None:
        return None
    checked = found.verification and _verification(found.verification)
    return {"file": found.file, "verification": checked, "not_run": found.not_run}


def _verification(found: Verification) -> dict[str, Any]:
    return {**dataclasses.asdict(found), "variant": str(found.variant), "passed": found.passed}


def _unpack(file: BinaryIO, into: Path) -> set[str]:
    left = MAX_BYTES
    seen: set[str] = set()
    for member in archives.members(file):
        name = member.name
        if member.is_folder or not (name in FILES or wheels.NAME.fullmatch(name)) or PurePosixPath(name).name != name:
            raise errors.InvalidBundle(f"the bundle contains the unexpected file {name[:80]!r}")
        if name in seen:
            raise errors.InvalidBundle(f"the bundle contains {name} twice")
        seen.add(name)
        left -= member.size
        if left < 0 or (name == MANIFEST and member.size > _MAX_MANIFEST_BYTES):
            raise errors.InvalidBundle(f"{name} is too large for a bundle")
        # An existing file or link of this name must not be followed.
        (into / name).unlink(missing_ok=True)
        with (into / name).open("xb") as unpacked:
            shutil.copyfileobj(archives.content(file, member), unpacked, _CHUNK_BYTES)
    return seen


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o755 if name == EXAMPLE else 0o644
    return member


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()


def file_digest(path: Path) -> str:
    """Return a file's sha256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
