"""What a bundle holds, read without running any of it: digests, and what its libraries import and export.

A bundle is native code: none of this proves that it is harmless. It tells whether a file is what it says it is and
looks like what a worker builds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from tunesmith import archives, elf, errors

MANIFEST = "manifest.json"
_MAX_MANIFEST_BYTES = 4 * 1024**2
_MAX_LIBRARY_BYTES = 1024**3
"""Larger weights lie in a file of their own."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NEEDED = re.compile(r"lib(c|m)\.so\.6|lib(pthread|dl)\.so\.[0-9]|ld-linux[a-z0-9_-]*\.so\.[0-9]")
"""Parts of glibc. TVM's linker options and old releases of glibc name some of them."""
_STARTUP = frozenset(
    ("__cxa_atexit", "__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable")
)
_MATH = frozenset(
    f"{name}{suffix}"
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh"),
        *("erf", "erfc", "exp", "exp10", "exp2", "expm1", "fabs", "floor", "fma", "fmax", "fmin", "fmod", "frexp"),
        *("hypot", "ldexp", "lgamma", "llrint", "llround", "log", "log10", "log1p", "log2", "lrint", "lround"),
        *("nearbyint", "pow", "remainder", "rint", "round", "roundeven", "sin", "sincos", "sinh", "sqrt", "tan"),
        *("tanh", "tgamma", "trunc"),
    )
    for suffix in ("", "f")
)
_MEMORY = frozenset(
    ("aligned_alloc", "calloc", "free", "malloc", "memcmp", "memcpy", "memmove", "memset", "posix_memalign", "realloc")
)
_TEXT = frozenset(
    ("snprintf", "sscanf", "strchr", "strcmp", "strcspn", "strerror", "strlen", "strncmp", "strrchr", "vsnprintf")
)
_THREADS = frozenset(
    (
        *("__register_atfork", "__sched_cpucount", "__stack_chk_fail", "__tls_get_addr", "clock_gettime", "getauxval"),
        *("pthread_atfork", "pthread_create", "pthread_join", "pthread_mutex_destroy", "pthread_mutex_init"),
        *("pthread_mutex_lock", "pthread_mutex_unlock", "pthread_once", "pthread_sigmask", "sched_getaffinity"),
        *("sched_getcpu", "sched_setaffinity", "sched_yield", "sigfillset", "syscall", "sysconf"),
    )
)
_FILES = frozenset(
    (
        *("__errno_location", "close", "dladdr", "fclose", "fgets", "fopen", "fscanf", "lseek", "mmap", "munmap"),
        *("open", "realpath"),
    )
)
_LOADING = frozenset(("dladdr", "dlerror", "dlopen", "dlsym"))
_COMPUTING = _STARTUP | _MATH | _MEMORY | _TEXT
_TVM = re.compile(r"(__)?TVM[A-Za-z0-9_]+")
_SUFFIX = re.compile(r"__(isoc\d\d_)?([a-z0-9_]+?)(_chk|_finite)?")
"""glibc's names for functions in other standards, with checks of sizes, and without ``errno``."""


@dataclass(frozen=True, kw_only=True)
class _Rule:
    exports: frozenset[str] | None
    """None for any."""
    imports: frozenset[str]
    tvm: bool = False
    """Whether it may import functions of TVM's runtime."""


_RULES = {
    "libmodel.so": _Rule(exports=frozenset({"tunesmith_get_api"}), imports=_COMPUTING | _THREADS | _FILES),
    "libtunesmith_ort.so": _Rule(exports=frozenset({"RegisterCustomOps"}), imports=_COMPUTING | _THREADS | _LOADING),
    "mod.so": _Rule(exports=None, imports=_COMPUTING, tvm=True),
}
_DATA = frozenset(
    (
        *(MANIFEST, "evidence.json", "records.json", "mod.json", "mod.params", "README.md"),
        *("model.onnx", "original.onnx", "prepared.onnx", "rewritten.onnx", "quantized.onnx", "libmodel.weights"),
    )
)
"""Files that nothing executes. Headers and examples are left to their reader."""


@dataclass(frozen=True, kw_only=True)
class Library:
    """What the dynamic section of a library says."""

    needed: tuple[str, ...]
    """Libraries that it loads."""
    imports: tuple[str, ...]
    exports: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A bundle that passed."""

    sha256: str
    """Of the bundle, in hex."""
    manifest: Mapping[str, Any]
    """As in ``manifest.json``; its author's claims."""
    libraries: Mapping[str, Library]
    unchecked: tuple[str, ...]
    """Files with code or texts that only their digests were checked of."""


def check(bundle: Path, *, digest: str | None = None, model: Path | None = None) -> Checked:
    """Check a bundle's structure, the digest of each file and its libraries, without running anything.

    ``digest`` is the expected sha256 of the bundle, ``model`` the ONNX file that it should be compiled from. Raises
    InvalidInput with the code ``unreadable_file``, ``invalid_bundle``, ``wrong_digest`` or ``suspicious_library``.
    """
    try:
        with bundle.open("rb") as file:
            actual = _sha256(file)
            if digest is not None:
                _require(actual, digest.lower().removeprefix("sha256:"), str(bundle))
            members = _members(file, bundle)
            manifest = _manifest(file, members, bundle)
            _check_files(file, members, manifest["files"], bundle)
            libraries = {name: _library(file, members[name]) for name in sorted(members.keys() & _RULES.keys())}
        if model is not None:
            with model.open("rb") as file:
                _require(_sha256(file), manifest["model_digest"], str(model))
    except OSError as error:
        raise errors.unreadable(Path(error.filename or bundle)) from error
    unchecked = tuple(sorted(members.keys() - _RULES.keys() - _DATA))
    return Checked(sha256=actual, manifest=manifest, libraries=libraries, unchecked=unchecked)


def _members(file: BinaryIO, bundle: Path) -> dict[str, archives.Member]:
    try:
        found = archives.members(file)
    except archives.InvalidArchive as error:
        raise _invalid(f"{bundle} is not a bundle: {error}") from error
    members = {member.name: member for member in found}
    if len(members) < len(found):
        raise _invalid(f"{bundle} contains a file twice")
    for member in found:
        if member.is_folder or Path(member.name).name != member.name or not member.name.isprintable():
            raise _invalid(f"{bundle} contains {member.name[:80]!r}, which no bundle has")
    return members


def _manifest(file: BinaryIO, members: Mapping[str, archives.Member], bundle: Path) -> dict[str, Any]:
    member = members.get(MANIFEST)
    if member is None or member.size > _MAX_MANIFEST_BYTES:
        raise _invalid(f"{bundle} is not a bundle: it has no {MANIFEST}")
    file.seek(member.start)
    try:
        manifest = json.loads(file.read(member.size))
        texts = [manifest[name] for name in ("model_name", "model_digest", "target", "created_by")]
        files = manifest["files"]
        sound = all(isinstance(text, str) for text in (*texts, *files, *files.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound or not _SHA256.fullmatch(manifest["model_digest"]):
        raise _invalid(f"{MANIFEST} of {bundle} cannot be read")
    return dict(manifest)


def _check_files(
    file: BinaryIO, members: Mapping[str, archives.Member], expected: Mapping[str, str], bundle: Path
) -> None:
    for name in sorted(expected.keys() - members.keys()):
        raise _invalid(f"{bundle} lacks {name[:80]!r}, which its {MANIFEST} names")
    for name, member in members.items():
        if name == MANIFEST:
            continue
        if name not in expected:
            raise _invalid(f"{bundle} contains {name[:80]!r}, which its {MANIFEST} does not name")
        _require(_sha256(archives.content(file, member)), expected[name], name)


def _library(file: BinaryIO, member: archives.Member) -> Library:
    rule, name = _RULES[member.name], member.name
    if member.size > _MAX_LIBRARY_BYTES:
        raise _suspicious(f"{name} has {member.size} bytes, more than {_MAX_LIBRARY_BYTES}")
    file.seek(member.start)
    try:
        found = elf.read(file.read(member.size))
    except ValueError as error:
        raise _suspicious(f"{name} is not a library for Linux: {error}") from error
    if found.search_path:
        raise _suspicious(f"{name} loads libraries from {found.search_path[:80]!r}")
    if found.writable_code:
        raise _suspicious(f"{name} has {found.writable_code}")
    foreign = [needed for needed in found.needed if not _NEEDED.fullmatch(needed)]
    if foreign:
        raise _suspicious(f"{name} loads {_listed(foreign)}; libraries of models need libc alone")
    unknown = [each for each in sorted(found.imports) if not _allowed(each, rule)]
    if unknown:
        raise _suspicious(f"{name} imports {_listed(unknown)}, which libraries of models do not need")
    if rule.exports is not None and found.exports != rule.exports:
        extra, missing = sorted(found.exports - rule.exports), sorted(rule.exports - found.exports)
        text = f"exports {_listed(extra)}" if extra else f"does not export {_listed(missing)}"
        raise _suspicious(f"{name} {text}; only {_listed(sorted(rule.exports))} is expected")
    return Library(
        needed=tuple(found.needed), imports=tuple(sorted(found.imports)), exports=tuple(sorted(found.exports))
    )


def _allowed(imported: str, rule: _Rule) -> bool:
    if imported in rule.imports:
        return True
    other = _SUFFIX.fullmatch(imported)
    if other and (other[1] or other[3]) and other[2] in rule.imports:
        return True
    return rule.tvm and _TVM.fullmatch(imported) is not None


def _require(actual: str, expected: str, name: str) -> None:
    if actual != expected:
        raise errors.InvalidInput(
            f"the sha256 of {name} is {actual}, not {expected[:80]}",
            code="wrong_digest",
            hint="It was changed or damaged, or is another file: get it from its author again.",
        )


def _sha256(file: BufferedReader) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _listed(names: list[str]) -> str:
    shown = ", ".join(name[:60] if name.isprintable() else ascii(name[:60]) for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _invalid(message: str) -> errors.InvalidInput:
    return errors.InvalidInput(message, code="invalid_bundle")


def _suspicious(message: str) -> errors.InvalidInput:
    return errors.InvalidInput(
        message,
        code="suspicious_library",
        hint="Do not load it unless you trust its author; a newer client may know it.",
    )
