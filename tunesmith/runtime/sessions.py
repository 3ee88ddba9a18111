"""Sessions with the method set of ``onnxruntime.InferenceSession``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

from tunesmith.runtime import libraries, loading
from tunesmith.runtime.backends import Backend, BackendUnavailable, RunError
from tunesmith.runtime.libraries import Library
from tunesmith.runtime.tensors import NoSuchSize, Tensor, TensorInfo

__all__ = ["InferenceSession", "ModelMetadata", "NoSuchSize", "RunError", "TensorInfo"]

_LIBRARY = "library"


class ModelMetadata(NamedTuple):
    """As ONNX Runtime's; ``custom_metadata_map`` is ``InferenceSession.metadata``."""

    custom_metadata_map: dict[str, str]
    producer_name: str = "tunesmith"
    graph_name: str = ""
    description: str = ""
    domain: str = ""
    graph_description: str = ""
    version: int = 0


class InferenceSession:
    """A tuned model, ready to run. May be used from several threads, one run at a time, and after a fork."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        spin: int | None = None,
        pin: bool = False,
        digest: str | None = None,
        runtime: str | None = None,
        otherwise: str | os.PathLike[str] | None = None,
    ) -> None:
        """``path`` is a bundle, a folder with its files, or a ``libmodel.so``.

        A bundle whose benchmark found ONNX Runtime or OpenVINO faster than the library is run by that if it can be
        imported, any other by the library; ``runtime`` (``library``, ``onnxruntime`` or ``openvino``) insists on one.

        ``threads`` defaults to the number that it was tuned for, but at most the CPUs that the process may use. An idle
        thread looks for work ``spin`` times before it sleeps (ONNX Runtime knows 0 and its own number, OpenVINO only
        that); ``pin`` keeps each on a CPU of its own, in the library. ``digest`` is the expected sha256 of the file.

        ``otherwise`` is an ONNX model with the same inputs and outputs, which ONNX Runtime runs on inputs of shapes
        that the model was not compiled for. Raises LoadError, also for a CPU that lacks instructions, and ValueError.
        """
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        if runtime not in (None, _LIBRARY, *loading.RUNTIMES):
            names = f"{_LIBRARY}, {' or '.join(loading.RUNTIMES)}"
            raise ValueError(f"runtime must be {names}, not {runtime!r}")
        if pin and runtime in loading.RUNTIMES:
            raise ValueError(f"pin is an option of the library, not of {runtime}")
        facts = None if runtime == _LIBRARY or pin else loading.facts(path)
        self._reason = _why_library(runtime, pin=pin)
        found: Backend | None = None
        name = runtime if runtime in loading.RUNTIMES else facts and facts.name
        if name:
            try:
                found = _backend(name)(path, digest, threads=threads, spin=spin)
                self._reason = _why(facts, asked=runtime is not None)
            except BackendUnavailable as error:
                install = f"pip install {name}=={facts.version}" if facts else f"pip install {name}"
                self._reason = f"{name} was faster in the benchmark, but {error}; {install}"
                if runtime is not None:
                    raise loading.LoadError(f"{os.fspath(path)}: {error}; {install}") from error
        self._model = found or self._library(path, digest, threads=threads, spin=spin, pin=pin, facts=facts)
        self._otherwise = _other_model(otherwise, self._model.threads) if otherwise is not None else None
        self._inputs, self._outputs = self._model.inputs, self._model.outputs
        self._names = [output.name for output in self._outputs]

    def _library(
        self, path: str | os.PathLike[str], digest: str | None, *, facts: loading.ModelFacts | None, **options: Any
    ) -> Library:
        try:
            return libraries.opened(path, digest, **options)
        except loading.LoadError as error:
            if facts is None:
                raise
            raise loading.LoadError(f"{error}. {self._reason}") from error

    def get_inputs(self) -> list[TensorInfo]:
        return [each.info for each in self._inputs]

    def get_outputs(self) -> list[TensorInfo]:
        return [each.info for each in self._outputs]

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

    def get_modelmeta(self) -> ModelMetadata:
        return ModelMetadata(custom_metadata_map=self.metadata)

    @property
    def runtime(self) -> str:
        """Return what runs the model: ``library``, or ``onnxruntime`` or ``openvino`` and its version."""
        return self._model.name

    @property
    def reason(self) -> str:
        """Return why that runs it."""
        return self._reason

    @property
    def sizes(self) -> list[dict[str, int]]:
        """Return the sizes that the library has entry points for, by dimension; empty if there is one for all."""
        return [dict(each) for each in self._model.sizes]

    @property
    def threads(self) -> int:
        return self._model.threads

    @property
    def metadata(self) -> dict[str, str]:
        """Return ``model``, the sha256 of the ONNX file, ``toolchain`` and ``target``."""
        return self._model.metadata

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: None = None,  # noqa: ARG002 - programs written for ONNX Runtime pass it
        *,
        out: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Return the named outputs, or all, as arrays.

        Inputs are arrays of the model's shapes and types. ``out`` has arrays by name to write outputs to; the others
        are new. Arrays at addresses that are multiples of 64 are not copied by the library. Raises ValueError for
        unsuitable arrays and names, NoSuchSize, which is one, for shapes that the model was not compiled for, and
        RunError.
        """
        try:
            inputs = self._arrays(input_feed)
            if not output_names and not out:
                return self._model.run(inputs, None)
            return self._run_named(output_names or self._names, inputs, out)
        except NoSuchSize:
            if self._otherwise is None:
                raise
            return _run_otherwise(self._otherwise, output_names or self._names, input_feed, out or {})

    def _run_named(self, names: Sequence[str], inputs: list[Any], out: Mapping[str, Any] | None) -> list[Any]:
        if out and not out.keys() <= set(names):
            raise ValueError(f"out has {', '.join(out)}; the outputs asked for are {', '.join(names)}")
        shapes = dict(zip(self._names, self._model.output_shapes(inputs), strict=True))
        if any(self._tensor(name).is_open and shapes[name] is None for name in names):
            return self._run_open(names, inputs, out or {})
        made = {name: self._output(name, shapes.get(name), out) for name in names}
        self._model.run(inputs, [made.get(name) for name in self._names])
        return [made[name] for name in names]

    def _run_open(self, names: Sequence[str], inputs: list[Any], out: Mapping[str, Any]) -> list[Any]:
        """Run a model where the run decides the shapes of outputs."""
        found = dict(zip(self._names, self._model.run(inputs, None), strict=True))
        into = {name: self._tensor(name).writable(array, found[name].shape) for name, array in out.items()}
        for name, array in into.items():
            array[...] = found[name]
        return [into.get(name, found[name]) for name in names]

    def time(self, input_feed: Mapping[str, Any], *, number: int = 1, repeat: int = 1) -> list[float]:
        """Return seconds per run, one value per repeat, each the mean of ``number`` runs, after a warm-up run.

        The arrays are prepared beforehand, so that this is the time of the model. Raises as ``run`` does.
        """
        once = self._repeated(input_feed)
        once()
        samples = []
        for _ in range(repeat):
            started = time.perf_counter()
            for _ in range(number):
                once()
            samples.append((time.perf_counter() - started) / number)
        return samples

    def _repeated(self, feed: Mapping[str, Any]) -> Callable[[], object]:
        try:
            return self._model.repeated(self._arrays(feed))
        except NoSuchSize:
            if self._otherwise is None:
                raise
            return partial(self._otherwise.run, self._names, feed)

    def profile(self, input_feed: Mapping[str, Any]) -> list[tuple[str, float]]:
        """Run once and return each kernel's name and seconds, in the order of execution.

        Raises as ``run`` does, and NoSuchSize for sizes between entry points.
        """
        return self._model.profile(self._arrays(input_feed))

    def close(self) -> None:
        """Free the session's memory and threads. No other method may be used afterwards."""
        self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _arrays(self, feed: Mapping[str, Any]) -> list[Any]:
        """Return the inputs in their order as contiguous arrays. Raises ValueError."""
        try:
            arrays = [each.contiguous(feed[each.name]) for each in self._inputs]
        except KeyError:
            arrays = []
        if len(arrays) != len(feed) or len(arrays) != len(self._inputs):
            given, known = ", ".join(feed) or "nothing", ", ".join(each.name for each in self._inputs)
            raise ValueError(f"the model's inputs are {known}; given: {given}")
        return arrays

    def _output(self, name: str, shape: tuple[int, ...] | None, out: Mapping[str, Any] | None) -> Any:
        """Return the caller's array for an output, of a shape if it varies, or a new one. Raises ValueError."""
        tensor = self._tensor(name)
        return tensor.writable(out[name], shape) if out and name in out else tensor.empty(shape)

    def _tensor(self, name: str) -> Tensor:
        """Return an output. Raises ValueError."""
        for each in self._outputs:
            if each.name == name:
                return each
        raise ValueError(f"the model has no output {name!r}; it has {', '.join(self._names)}")


def _why_library(runtime: str | None, *, pin: bool) -> str:
    if runtime is not None:
        return "the program asked for it"
    return "pin is an option of the library" if pin else "the file has nothing faster"


def _why(facts: loading.ModelFacts | None, *, asked: bool) -> str:
    if asked or facts is None:
        return "the program asked for it"
    return f"{facts.name} {facts.version} was faster than the library in the benchmark"


def _run_otherwise(model: Any, names: Sequence[str], feed: Mapping[str, Any], out: Mapping[str, Any]) -> list[Any]:
    made: list[Any] = model.run(names, feed)
    for place, name in enumerate(names):
        if name in out:
            out[name][...] = made[place]
            made[place] = out[name]
    return made


def _other_model(path: str | os.PathLike[str], threads: int) -> Any:
    from tunesmith.runtime import onnx_runtime

    return onnx_runtime.OnnxModel(path, threads)


def _backend(name: str) -> Any:
    """Return the class for one of ``loading.RUNTIMES``; what it imports takes time, which libraries need not spend."""
    if name == "openvino":
        from tunesmith.runtime import open_vino

        return open_vino.OpenVino
    from tunesmith.runtime import onnx_runtime

    return onnx_runtime.OnnxRuntime
