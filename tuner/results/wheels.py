"""Wheels of tuned models: ``pip install`` one, then ``import`` it and run the model with numpy alone.

A wheel has the model's library, and the modules of ``tunesmith.runtime`` under its own name, so that wheels of several
models, made by several releases, can be installed together (packaging.python.org, Binary distribution format).
"""

from __future__ import annotations

import base64
import hashlib
import keyword
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from domain.targets import option_of
from tuner.results.manifest import Manifest
from tunesmith import elf

LIBRARY, WEIGHTS = "libmodel.so", "libmodel.weights"
NAME = re.compile(r"[a-z0-9_]{1,64}-0\+g[0-9a-f]{12}-py3-none-(manylinux2014|linux)_[a-z0-9_]{1,20}\.whl")
"""Names of such files."""
_RUNTIME = Path(__file__).parents[2] / "tunesmith"
_MODULES = (
    "archives.py",
    *(f"runtime/{name}.py" for name in ("backends", "interface", "libraries", "loading", "models", "onnx_runtime")),
    *(f"runtime/{name}.py" for name in ("open_vino", "sessions", "sizes", "tensors")),
)
_TAKEN = sys.stdlib_module_names | {"numpy", "tunesmith"}
_IMPORT = re.compile(r"^( *)from tunesmith(?:\.runtime)?(\.\w+)? import ", re.MULTILINE)
_CHUNK_BYTES = 1024 * 1024
_GLIBC = re.compile(r"GLIBC_2\.(\d+)(\.\d+)?")
_MANYLINUX2014 = 17
"""The second number of its glibc's version."""
_EPOCH = (1980, 1, 1, 0, 0, 0)

_INIT = '''\
"""A tuned model.

    import {package}

    outputs = {package}.run(inputs)
"""

from pathlib import Path as _Path

from {package}._runtime.loading import LoadError
from {package}._runtime.sessions import InferenceSession as _InferenceSession
from {package}._runtime.sessions import NoSuchSize, RunError, TensorInfo

__all__ = ["LoadError", "NoSuchSize", "RunError", "TensorInfo", "run", "session"]
_default = None


def session(**options):
    """Return a new session; options are ``threads``, ``spin``, ``pin`` and ``otherwise``. Raises LoadError."""
    return _InferenceSession(_Path(__file__).parent / "{library}", **options)


def run(inputs):
    """Return the outputs by name, as new arrays; ``inputs`` are arrays by name. Raises ValueError, RunError."""
    global _default
    if _default is None:
        _default = session()
    names = [output.name for output in _default.get_outputs()]
    return dict(zip(names, _default.run(names, inputs)))
'''

_METADATA = """\
Metadata-Version: 2.1
Name: {package}
Version: {version}
Summary: A tuned model
Requires-Python: >=3.11
Requires-Dist: numpy>=1.24
"""


def write(folder: Path, manifest: Manifest) -> str:
    """Write the wheel of the ``libmodel.so`` in a folder, with its weights, beside it, and return its name.

    Equal libraries make equal wheels.
    """
    library = (folder / LIBRARY).read_bytes()
    digest = hashlib.sha256(library).hexdigest()
    package, tag = _package(manifest), f"py3-none-{_platform(manifest, library)}"
    versioned = f"{package}-{_version(digest)}"
    written, info = f"{versioned}-{tag}.whl", f"{versioned}.dist-info"
    record = []
    with zipfile.ZipFile(folder / written, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in _files(package, info, _version(digest), tag, library):
            archive.writestr(zipfile.ZipInfo(path, _EPOCH), content, zipfile.ZIP_DEFLATED)
            record.append(_row(path, hashlib.sha256(content).digest(), len(content)))
        if (folder / WEIGHTS).exists():
            record.append(_add(archive, f"{package}/{WEIGHTS}", folder / WEIGHTS))
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", _EPOCH), "".join(record) + f"{info}/RECORD,,\n")
    return written


def _add(archive: zipfile.ZipFile, path: str, file: Path) -> str:
    """Add a file that may be too large for memory, and return its row of the record."""
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as source, archive.open(zipfile.ZipInfo(path, _EPOCH), "w", force_zip64=True) as target:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            target.write(chunk)
            size += len(chunk)
    return _row(path, digest.digest(), size)


def _row(path: str, digest: bytes, size: int) -> str:
    hashed = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return f"{path},sha256={hashed},{size}\n"


def _files(package: str, info: str, version: str, tag: str, library: bytes) -> Iterator[tuple[str, bytes]]:
    # Nothing that an uploader named: it would be code here.
    facts = {"package": package, "version": version}
    yield f"{package}/__init__.py", _INIT.format(library=LIBRARY, **facts).encode()
    yield f"{package}/{LIBRARY}", library
    yield f"{package}/_runtime/__init__.py", b""
    for module in _MODULES:
        source = _IMPORT.sub(rf"\1from {package}._runtime\2 import ", (_RUNTIME / module).read_text())
        yield f"{package}/_runtime/{Path(module).name}", source.encode()
    yield f"{info}/METADATA", _METADATA.format(**facts).encode()
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: tunesmith\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()


def _package(manifest: Manifest) -> str:
    """Return a name for the package that Python can import, and that hides no module that others import."""
    plain = re.sub(r"[^a-z0-9]+", "_", manifest.model_name.lower().removesuffix(".onnx")).strip("_")[:50]
    is_free = plain.isidentifier() and not keyword.iskeyword(plain) and plain not in _TAKEN
    return plain if is_free else f"model_{plain}".rstrip("_")


def _version(digest: str) -> str:
    return f"0+g{digest[:12]}"


def _platform(manifest: Manifest, library: bytes) -> str:
    triple = option_of(manifest.target, "-mtriple") or manifest.device_key
    machine = re.split("[-/]", triple)[0].replace("arm64", "aarch64")
    return f"manylinux2014_{machine}" if _is_manylinux2014(library) else f"linux_{machine}"


def _is_manylinux2014(library: bytes) -> bool:
    """Return whether the library needs no newer glibc than manylinux2014 has."""
    try:
        found = [_GLIBC.fullmatch(version) for version in elf.read(library).versions]
    except ValueError:
        return False
    return bool(found) and all(version and int(version[1]) <= _MANYLINUX2014 for version in found)
