"""Execution and timing of compiled bundles, on this machine and on RPC devices."""

from __future__ import annotations

import ctypes
import itertools
import math
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import compiling, environment, faults, guard_pages
from tuner.engines.runtime.compiling import Release
from tuner.engines.runtime.library import kernels
from tuner.engines.runtime.library.linking import LIBRARY, WEIGHTS
from tunesmith.runtime import InferenceSession, LoadError, NoSuchSize

Arrays = dict[str, Any]


class Network(ABC):
    """A compiled network on one device. ``inputs`` are ``{name, dtype, shape}`` in parameter order."""

    inputs: Sequence[Json]
    sizes: Mapping[str, int] = MappingProxyType({})
    """Of a network for several sizes: the values with which one of them replaces the names in shapes."""
    outputs: Sequence[str]
    """Output names."""
    runtime: str = "TVM"
    """What runs it: ``TVM``, ``library``, or ``onnxruntime`` or ``openvino`` and its version."""

    @abstractmethod
    def feed(self, arrays: Arrays) -> None:
        """Set the inputs of the next runs."""

    @abstractmethod
    def run(self) -> Sequence[Any]:
        """Run once and return the array of each output."""

    @abstractmethod
    def sample(self, number: int, repeat: int) -> list[float]:
        """Return seconds per run, one value per repeat, each the mean of ``number`` runs, after one warm-up run."""

    def feed_file(self, path: str | None) -> None:
        """Feed the arrays of an ``.npz`` file, by default random ones. Raises EngineFailure ``invalid_inputs``."""
        self.feed(_read(path, self.inputs) if path else _random(self.inputs, self.sizes))

    def run_once(self, inputs: str | None, outputs: str | None) -> list[Json]:
        """Run on the inputs of ``feed_file``, write the outputs if a path is given, and return their specs."""
        self.feed_file(inputs)
        arrays = dict(zip(self.outputs, self.run(), strict=True))
        if outputs:
            # numpy would append ".npz" to a path, but not to an open file.
            with Path(outputs).open("wb") as file:
                np.savez(file, **arrays)
        return [{"name": name, "dtype": str(each.dtype), "shape": list(each.shape)} for name, each in arrays.items()]


class SessionNetwork(Network):
    """A network without TVM: a session of ``tunesmith.runtime``."""

    def __init__(self, path: Path, threads: int, runtime: str) -> None:
        """Raises EngineFailure ``invalid_bundle``."""
        try:
            self._session = InferenceSession(path, threads=threads, runtime=runtime)
        except LoadError as error:
            raise EngineFailure("invalid_bundle", str(error)) from error
        self.runtime = self._session.runtime
        self.inputs = [
            {"name": info.name, "dtype": info.dtype, "shape": info.shape} for info in self._session.get_inputs()
        ]
        self.sizes = next(iter(self._session.sizes), {})
        self.outputs = [info.name for info in self._session.get_outputs()]
        self._fed: Arrays = {}

    def feed(self, arrays: Arrays) -> None:
        self._fed = arrays

    def run(self) -> Sequence[Any]:
        with _served():
            return self._session.run(None, self._fed)

    def sample(self, number: int, repeat: int) -> list[float]:
        with _served():
            return self._session.time(self._fed, number=number, repeat=repeat)


@contextmanager
def _served() -> Iterator[None]:
    """Convert errors about inputs' sizes to EngineFailure ``invalid_inputs``."""
    try:
        yield
    except NoSuchSize as error:
        raise EngineFailure("invalid_inputs", str(error)) from error


class LibraryNetwork(SessionNetwork):
    """The library of a build."""

    def __init__(self, folder: Path, threads: int) -> None:
        """Raises EngineFailure ``invalid_bundle``."""
        with _copied(folder / LIBRARY) as path:
            if (folder / WEIGHTS).exists():
                # The library looks for them beside itself, and the sandbox forbids links.
                shutil.copyfile(folder / WEIGHTS, path.with_name(WEIGHTS))
            super().__init__(path, threads, "library")
        self._kernels = kernels.read(folder)
        self._at_end = itertools.cycle((False, True))

    def run(self) -> Sequence[Any]:
        """Run with guard pages around inputs and outputs, which alternately start and end at one."""
        at_end = next(self._at_end)
        fed = {name: guard_pages.copy(array, at_end=at_end) for name, array in self._fed.items()}
        made = {}
        for info in self._session.get_outputs():
            fixed = [size for size in info.shape if isinstance(size, int)]
            if len(fixed) == len(info.shape):
                made[info.name] = guard_pages.zeros(fixed, info.dtype, at_end=at_end)
        with _served():
            return self._session.run(None, fed, out=made)

    def profile(self, repeat: int) -> Json:
        """Return ``{seconds, layers}``: ``quick_mean`` of ``repeat`` runs, and of each kernel in as many other runs.

        The two kinds of runs take turns. A layer has the ``name`` and ``seconds`` of a kernel, and its tensors as
        ``library.kernels`` describes them, if the build has them.
        """
        whole: list[float] = []
        runs = []
        for _ in range(repeat):
            with _served():
                whole += self._session.time(self._fed)
                runs.append(self._session.profile(self._fed))
        names = [name for name, _ in runs[0]]
        means = quick_mean([[seconds for _, seconds in run] for run in runs])
        known = self._kernels if [each["name"] for each in self._kernels] == names else [{} for _ in names]
        layers = [
            {**tensors, "name": name, "seconds": seconds}
            for tensors, name, seconds in zip(known, names, means, strict=True)
        ]
        return {"seconds": quick_mean([[seconds] for seconds in whole])[0], "layers": layers}


def quick_mean(runs: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean time of each part of a run over the quicker half of the runs; all runs have the same parts.

    Other programs disturb a whole run more often than any one part of it: medians of parts would not add up to that of
    the whole.
    """
    quickest = sorted(runs, key=math.fsum)[: (len(runs) + 1) // 2]
    return [math.fsum(times) / len(quickest) for times in zip(*quickest, strict=True)]


def without_profiler(times: Sequence[float], whole: float) -> list[float]:
    """Subtract what a profiler adds to each node or layer while it describes it: in ONNX Runtime 5 µs, more than small
    nodes take.

    It is the same for all, so at most the time of the quickest one, and no more than they take longer together than a
    plain run, of ``whole`` seconds.
    """
    excess = math.fsum(times) - whole
    taken = max(0.0, min([excess / len(times), *times])) if times else 0.0
    return [time - taken for time in times]


def run(load: Callable[[str, int], Network], params: Json) -> Json:
    """Answer a ``run`` request on this machine; ``load(bundle, threads)`` loads a bundle, cached."""
    network = load(params["bundle"], params["threads"])
    outputs = network.run_once(params.get("inputs"), params.get("outputs"))
    samples = _samples(load, params) if params.get("repeat") else []
    return {"outputs": outputs, "runtime": network.runtime, "samples": samples}


def time(load: Callable[[str, int], Network], params: Json) -> Json:
    """Answer a ``time`` request on this machine."""
    samples = _samples(load, params)
    environment.settle()
    return {"samples": samples}


def profile(load: Callable[[str, int], LibraryNetwork], params: Json) -> Json:
    """Answer a ``profile`` request on this machine."""
    network = load(params["bundle"], params["threads"])
    network.feed_file(params.get("inputs"))
    found = network.profile(params["repeat"])
    environment.settle()
    return found


def _samples(load: Callable[[str, int], Network], params: Json) -> list[float]:
    network = load(params["bundle"], params["threads"])
    network.feed_file(params.get("inputs"))
    return network.sample(params.get("number") or 1, params["repeat"])


def _load(bundle: str, threads: int) -> LibraryNetwork:
    """Load a bundle's library, cached, to run on ``threads`` threads. Raises EngineFailure ``invalid_bundle``."""
    return _loaded(bundle, threads, _modified_ns(bundle, [LIBRARY]))


@lru_cache(maxsize=4)
def _loaded(bundle: str, threads: int, modified_ns: tuple[int, ...]) -> LibraryNetwork:  # noqa: ARG001 - part of the key
    return LibraryNetwork(Path(bundle), threads)


@lru_cache(maxsize=4)
def _load_model(bundle: str, threads: int, runtime: str) -> Network:
    """Load the model for a runtime of a bundle's folder, which does not change, likewise."""
    return SessionNetwork(Path(bundle), threads, runtime)


def handlers(emulated: Callable[[str, str, int], Network] | None = None) -> dict[str, serving.Handler]:
    """Return the methods of engines that run bundles without TVM.

    With the parameter ``runtime`` they run the bundle's model in that, else its library; with the parameter
    ``emulated``, a machine, the library that ``emulated(machine, bundle, threads)`` loads.
    """

    def loader(params: Json) -> Callable[[str, int], Network]:
        runtime = params.get("runtime")
        if emulated and params.get("emulated"):
            return partial(emulated, params["emulated"])
        return partial(_load_model, runtime=runtime) if runtime else _load

    return {
        "run": lambda params, _: run(loader(params), params),
        "time": lambda params, _: time(loader(params), params),
        "profile": lambda params, _: profile(_load, params),
    }


def _modified_ns(bundle: str, files: Sequence[str]) -> tuple[int, ...]:
    try:
        return tuple((Path(bundle) / name).stat().st_mtime_ns for name in files)
    except OSError as error:
        raise EngineFailure("invalid_bundle", f"cannot read {error.filename}: {error.strerror}") from error


class Bundles:
    """Compiled bundles, of which the most recent stay loaded."""

    def __init__(
        self,
        release: Release,
        files: Sequence[str],
        load: Callable[[Path, Any], Network],
        load_remotely: Callable[[Path, Any, Any], Network],
    ) -> None:
        """``load(folder, library)`` loads ``files``, of which TVM has loaded the library; ``load_remotely(folder,
        session, library)`` uses an RPC session's library.

        Both raise whatever TVM raises for damaged files. On this machine, a build that has a library of its own is run
        by that: what is verified and measured is what is published.
        """
        self._files = files
        self._others = [name for name in files if name != compiling.LIBRARY]
        self._load_remotely = load_remotely
        self._use_threads = release.tvm.get_global_func("runtime.config_threadpool")

        @lru_cache(maxsize=4)
        def loaded(bundle: str, threads: int, modified_ns: tuple[int, ...]) -> Network:  # noqa: ARG001 - part of the key
            folder = Path(bundle)
            if (folder / LIBRARY).exists():
                return LibraryNetwork(folder, threads)
            with _reported():
                return load(folder, load_library(release, folder))

        @lru_cache(maxsize=1)
        def opened(bundle: str, file: str, modified_ns: tuple[int, ...]) -> Network:  # noqa: ARG001 - part of the key
            folder = Path(bundle)
            with _reported():
                return load(folder, load_library(release, folder, file))

        self._loaded, self._opened = loaded, opened

    def load(self, bundle: str, threads: int) -> Network:
        """Load a bundle, cached, to run on ``threads`` threads.

        Raises EngineFailure ``invalid_bundle``, and what the engine's ``load`` raises.
        """
        files = [LIBRARY] if (Path(bundle) / LIBRARY).exists() else self._files
        network = self._loaded(bundle, threads, _modified_ns(bundle, files))
        self._use_threads(BIG_CORES, threads)
        return network

    def load_file(self, bundle: str, threads: int, *, file: str) -> Network:
        """Load a bundle as programs that use TVM do, from its ``mod.so``, ``mod.tar`` or ``mod.a``, likewise.

        A process can load one ``mod.a``. Raises EngineFailure ``invalid_option`` for another file.
        """
        faults.require_known("file", file, (compiling.LIBRARY, compiling.OBJECTS, compiling.ARCHIVE))
        network = self._opened(bundle, file, _modified_ns(bundle, [file, *self._others]))
        self._use_threads(BIG_CORES, threads)
        return network

    def load_remotely(self, bundle: str, session: Any, upload: Callable[[str], Any]) -> Network:
        """Load a bundle in an RPC session, where ``upload(path)`` loads a library. Raises as ``load`` does."""
        _modified_ns(bundle, self._files)
        folder = Path(bundle)
        with _reported():
            return self._load_remotely(folder, session, upload(str(folder / compiling.LIBRARY)))


BIG_CORES = 1
"""Affinity mode of ``runtime.config_threadpool`` that allows any cores."""


def _reported() -> AbstractContextManager[None]:
    # TVM raises TVMError, OSError, ValueError or KeyError, depending on which file is damaged.
    return faults.reported("invalid_bundle", "TVM cannot load the compiled files")


def load_library(release: Release, folder: Path, file: str = compiling.LIBRARY) -> Any:
    """Load a ``mod.so``, ``mod.tar`` or ``mod.a`` of a bundle as a ``tvm.runtime.Module``."""
    with _copied(folder / file) as path:
        if file != compiling.ARCHIVE:
            # TVM links object files itself.
            return release.tvm.runtime.load_module(path.as_posix())
        linked = path.with_suffix(".so")
        whole = ["-Wl,--whole-archive", str(path), "-Wl,--no-whole-archive"]
        release.cc.create_shared(str(linked), [], whole)
        # Its functions register themselves with the runtime, which this process has loaded.
        ctypes.CDLL(str(linked), mode=ctypes.RTLD_GLOBAL)
        return release.tvm.runtime.system_lib()


@contextmanager
def _copied(library: Path) -> Iterator[Path]:
    """Copy a library: the dynamic loader caches them by path, so a rebuilt file at the same path would not be read."""
    with tempfile.TemporaryDirectory(prefix="tunesmith-load-") as copies:
        yield Path(shutil.copyfile(library, Path(copies) / library.name))


def read(path: str) -> Arrays:
    """Return the arrays of an ``.npz`` file. Raises EngineFailure ``invalid_inputs``."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:
        # zipfile, zlib, OSError and ValueError all mean that this is not a plain .npz file.
        raise EngineFailure("invalid_inputs", f"not an .npz file of arrays: {error}") from error


def _read(path: str, specs: Sequence[Json]) -> Arrays:
    arrays = read(path)
    names = {spec["name"] for spec in specs}
    if set(arrays) != names:
        message = f"the model's inputs are {', '.join(sorted(names))}; the file contains {', '.join(sorted(arrays))}"
        raise EngineFailure("invalid_inputs", message)
    for spec in specs:
        array = arrays[spec["name"]]
        if not _fits(array.shape, spec["shape"]) or str(array.dtype) != spec["dtype"]:
            have, want = f"{array.dtype}{tuple(array.shape)}", f"{spec['dtype']}{tuple(spec['shape'])}"
            raise EngineFailure("invalid_inputs", f"{spec['name']} is {have}; the model expects {want}")
    return arrays


def _fits(shape: Sequence[int], wanted: Sequence[int | str | None]) -> bool:
    return len(shape) == len(wanted) and all(
        size == named or not isinstance(named, int) for size, named in zip(shape, wanted, strict=True)
    )


def _random(specs: Sequence[Json], sizes: Mapping[str, int]) -> Arrays:
    """Return random inputs from a fixed seed; ``sizes`` are the values of names in shapes."""
    generator = np.random.default_rng(0)
    arrays = {}
    for spec in specs:
        floating = np.issubdtype(np.dtype(spec["dtype"]), np.floating)
        shape = [sizes.get(size, size) for size in spec["shape"]]
        values = generator.random(shape) if floating else generator.integers(0, 2, shape)
        arrays[spec["name"]] = values.astype(spec["dtype"])
    return arrays
