"""Runtimes that users have today, ONNX Runtime and OpenVINO, as candidates for what the bundle runs with.

Each runs the prepared model and, as far as the job's budget allows, the original and the rewritten one; in jobs that
consider narrower precisions also the quantized one, and OpenVINO in bf16; then the fastest of these with one option
changed at a time. Every candidate is verified before it is timed, and the fastest one of each runtime competes in the
benchmark. The reference, which is ONNX Runtime with its own options on the prepared model, is one of them.

Candidates run as the bundle's users run them: by ``tunesmith.runtime``, from a folder with a manifest and the model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from domain import errors, release
from domain.artifacts import Contender, Runtime, Variant, Verification
from domain.jobs import Precision
from domain.ports import Engine
from tuner.host import catalogue
from tuner.results import bundle, timing
from tuner.results.manifest import Manifest, OtherRuntime
from tuner.results.timing import Timed
from tuner.search import precisions
from worker.engines import ONNX
from worker.pipeline import recovery, references, verifying
from worker.pipeline.context import JobContext

_FOLDER = "runtimes"
"""Folder of the candidates' folders, within the work folder."""
_ROUNDS = 5
_SAMPLES = 2
_SHARE = 0.25
"""Share of the benchmark's seconds for each of the two comparisons of a runtime's candidates."""
_RUNS = 16
"""Runs of a candidate in the shortest comparison, with those that verify it."""


@dataclass(frozen=True, kw_only=True)
class _Kind:
    runtime: Runtime
    variant: Variant
    """As what it is timed in the benchmark."""
    options: Mapping[str, str]
    changes: Sequence[tuple[str, dict[str, str]]]
    """Options to try, with their description."""
    narrow: Mapping[Precision, Mapping[str, str]]
    """Options with which it computes the prepared model in a narrower precision."""


_SPINNING = "session.intra_op.allow_spinning"
_HINT = "INFERENCE_PRECISION_HINT"
_KINDS = (
    _Kind(
        runtime=Runtime.ONNXRUNTIME,
        variant=Variant.ONNXRUNTIME,
        options={},
        changes=(
            ("extended optimization", {"graph_optimization_level": "extended"}),
            ("no arena", {"enable_cpu_mem_arena": "0"}),
            ("no spinning", {_SPINNING: "0"}),
        ),
        narrow={},
    ),
    # Its own default is bfloat16 where the CPU has that.
    _Kind(
        runtime=Runtime.OPENVINO,
        variant=Variant.OPENVINO,
        options={_HINT: "f32"},
        changes=(),
        narrow={Precision.BF16: {_HINT: "bf16"}},
    ),
)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A runtime with a model and options."""

    words: tuple[str, ...] = ()
    """What differs from the runtime's own options on the prepared model."""
    variant: Variant
    runtime: Runtime
    version: str
    model: str = bundle.PREPARED
    """Name of the file in the bundle."""
    precision: Precision = Precision.F32
    options: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return ", ".join((str(self.runtime), *self.words))

    @property
    def is_reference(self) -> bool:
        return self.runtime is Runtime.ONNXRUNTIME and self.model == bundle.PREPARED and not self.options


@dataclass(kw_only=True)
class Candidates:
    """The candidates of a job."""

    competing: dict[Variant, Candidate] = field(default_factory=dict)
    """Those in the benchmark, the preferred one first."""
    verifications: dict[Variant, Verification] = field(default_factory=dict)
    others: list[Contender] = field(default_factory=list)
    """Those that are not in it, with reasons."""


def find(context: JobContext) -> Candidates:
    """Verify and compare the candidates. Raises LeaseLost, Canceled."""
    found = Candidates()
    if not references.competes(context):
        return found
    reference = Candidate(variant=Variant.REFERENCE, runtime=Runtime.ONNXRUNTIME, version=references.version(context))
    if Runtime.ONNXRUNTIME in context.request.runtimes:
        found.competing[Variant.REFERENCE] = reference
    for kind in _KINDS:
        if kind.runtime in context.request.runtimes:
            try:
                _Comparison(context, kind, reference, found).run()
            except errors.EngineNotInstalled:
                if context.request.runtimes != tuple(Runtime):
                    context.note(f"{kind.runtime} does not compete: it is not installed on this worker")
            except errors.TunesmithError as error:
                recovery.tolerate(context, error, f"candidates of {kind.runtime} were not compared")
            finally:
                context.engines.close(catalogue.RUNNING[kind.runtime], role=_FOLDER)
    return found


def timed(context: JobContext, candidate: Candidate, inputs: Path) -> Timed[Variant]:
    """Return the request of a candidate in the benchmark, where it has a process of its own."""
    if candidate.is_reference:
        return references.timed(context, inputs)
    return _timed(context, candidate, candidate.variant, inputs, role=candidate.variant)


def is_alive(context: JobContext, candidate: Candidate) -> bool:
    return context.engines.is_alive(catalogue.RUNNING[candidate.runtime], role=candidate.variant)


def close(context: JobContext, candidate: Candidate) -> None:
    context.engines.close(catalogue.RUNNING[candidate.runtime], role=candidate.variant)


def model(context: JobContext, name: str) -> Path:
    """Return the path of a candidate's model by the name of its file in bundles."""
    return context.prepared if name == bundle.PREPARED else context.folder / name


class _Comparison:
    """The candidates of one runtime."""

    def __init__(self, context: JobContext, kind: _Kind, reference: Candidate, found: Candidates) -> None:
        self._context, self._kind, self._reference, self._found = context, kind, reference, found
        self._right: dict[str, tuple[Candidate, Verification | None]] = {}
        self._ratios: dict[str, float] = {}
        """Times in multiples of that of the fastest model."""

    def run(self) -> None:
        """Raises EngineError and the caller's errors."""
        if not self._unspent:
            return
        self._compare(self._of_models())
        best = self._best()
        if best is not None:
            self._compare(self._with_changes(best), best)
        chosen = self._best()
        if chosen is not None and not chosen.is_reference:
            self._found.competing[self._kind.variant] = chosen
            verification = self._right[chosen.name][1]
            assert verification is not None  # noqa: S101 - only the reference has none
            self._found.verifications[self._kind.variant] = replace(verification, variant=self._kind.variant)
        for candidate, _ in self._right.values():
            if chosen is not None and candidate not in (chosen, self._reference):
                ratio = self._ratios[candidate.name] / self._ratios[chosen.name]
                self._leave_out(candidate, f"{ratio:.2f}× the time of {chosen.name} in the comparison", right=True)

    def _of_models(self) -> Iterator[Candidate]:
        """A candidate for each model, the reference among those of ONNX Runtime."""
        context = self._context
        yield self._candidate(bundle.PREPARED)
        yield from self._narrow()
        # Preparation leaves some models as they are.
        if context.model.digest != bundle.file_digest(context.prepared):
            original = model(context, bundle.ORIGINAL)
            if not original.exists():
                with context.blobs.local(context.model.digest) as uploaded:
                    partial = Path(shutil.copyfile(uploaded, original.with_suffix(".partial")))
                partial.replace(original)
            yield self._candidate(bundle.ORIGINAL, ("original model",))
        if context.rewritten.exists():
            yield self._candidate(bundle.REWRITTEN, ("rewritten model",))

    def _narrow(self) -> Iterator[Candidate]:
        """A candidate for each narrower precision that the job considers and the runtime has."""
        considered = self._context.results.imported.precisions
        for precision, options in self._kind.narrow.items():
            if precision in considered and str(precision) in self._engine().hello.get("precisions", ()):
                yield self._candidate(bundle.PREPARED, (str(precision),), options, precision)
        if Precision.INT8 in considered and self._context.quantized.exists():
            yield self._candidate(bundle.QUANTIZED, (str(Precision.INT8),), precision=Precision.INT8)

    def _with_changes(self, base: Candidate) -> Iterator[Candidate]:
        for text, options in self._kind.changes:
            if _SPINNING not in options or self._context.threads > 1:
                yield self._candidate(base.model, (*base.words, text), {**base.options, **options}, base.precision)

    def _candidate(
        self,
        file: str,
        words: tuple[str, ...] = (),
        options: Mapping[str, str] = MappingProxyType({}),
        precision: Precision = Precision.F32,
    ) -> Candidate:
        made = Candidate(
            words=words, variant=self._kind.variant, runtime=self._kind.runtime, version=self._version(), model=file,
            precision=precision, options={**self._kind.options, **options},
        )  # fmt: skip
        return self._reference if made.is_reference else made

    def _compare(self, candidates: Iterable[Candidate], best: Candidate | None = None) -> None:
        """Verify candidates and time the right ones beside the ``best`` so far, as far as the time allows."""
        most = int(self._allowed() / (_RUNS * self._run_seconds))
        considered = islice(candidates, most if best else max(most, 1))
        timed = [candidate for candidate in considered if self._admit(candidate)]
        if best is not None:
            timed.append(best)
        if len(timed) < 2:
            self._ratios |= {candidate.name: 1.0 for candidate in timed}
            return
        inputs = self._context.timed_inputs
        with self._context.exclusive_device():
            times = timing.interleave(
                [self._timed(candidate, inputs) for candidate in timed],
                rounds=_ROUNDS, samples=_SAMPLES, seconds=self._allowed(), canceled=self._context.canceled,
            )  # fmt: skip
        base = best.name if best is not None else min(times, key=lambda name: times[name].median)
        self._ratios |= {name: measured.median / times[base].median for name, measured in times.items()}

    def _admit(self, candidate: Candidate) -> bool:
        """Whether its results are right; it may then be timed."""
        if candidate.is_reference:
            self._right[candidate.name] = candidate, None
            return True
        folder, engine = _write(self._context, candidate), self._engine()
        try:
            found = verifying.compare(
                self._context, engine, candidate.variant, folder, self._context.seeded_inputs,
                self._context.expected_outputs, kinds=self._context.results.baseline.kinds, rows=self._context.rows,
                precision=candidate.precision, place=_place(self._context, candidate),
            )  # fmt: skip
        except (errors.EngineError, errors.InvalidRequest) as error:
            recovery.tolerate(self._context, error)
            self._leave_out(candidate, f"does not run: {error.message[:200]}", right=False)
            return False
        objection = self._objection(candidate, found)
        if objection:
            self._leave_out(candidate, objection, right=False)
            return False
        self._right[candidate.name] = candidate, found
        return True

    def _objection(self, candidate: Candidate, found: Verification) -> str:
        """Why its results do not do; empty if they do."""
        if candidate.precision is not Precision.F32:
            wrong = precisions.objections(found, precisions.gate_of(self._context.request, candidate.precision))
            return f"not accurate enough: {'; '.join(wrong)}" if wrong else ""
        return "" if found.passed else verifying.wrong_results(found)

    def _best(self) -> Candidate | None:
        """The fastest candidate; of those that differ by no more than noise, the first, which changes least."""
        best: str | None = None
        for name, ratio in self._ratios.items():
            if best is None or ratio < _WORTH * self._ratios[best]:
                best = name
        return None if best is None else self._right[best][0]

    @property
    def _run_seconds(self) -> float:
        measured = self._context.results.baseline.seconds.get(Variant.REFERENCE, 0.0)
        return max(measured, timing.SAMPLE_SECONDS)

    def _allowed(self) -> float:
        """Seconds of a comparison; the benchmark also needs time for what it chooses."""
        context = self._context
        left = context.limit.left_to_repeat - self._least
        return _SHARE * max(0.0, min(context.settings.benchmark_seconds, left, self._unspent))

    @property
    def _unspent(self) -> float:
        """Seconds of the job's total limit that the shortest benchmark leaves."""
        return max(0.0, self._context.limit.unspent - self._least)

    @property
    def _least(self) -> float:
        """Seconds of the shortest benchmark."""
        start = self._context.results.baseline.start_seconds
        return timing.least_seconds(len(Variant), run=self._run_seconds, start=start)

    def _leave_out(self, candidate: Candidate, verdict: str, *, right: bool) -> None:
        self._found.others.append(contender(candidate, verdict, verified=right))

    def _version(self) -> str:
        if self._kind.runtime is self._reference.runtime:
            return self._reference.version
        return str(self._engine().hello["toolchain"].get(str(self._kind.runtime), ""))

    def _engine(self) -> Engine:
        """Raises EngineNotInstalled."""
        return self._context.engines.get(catalogue.RUNNING[self._kind.runtime], role=_FOLDER)

    def _timed(self, candidate: Candidate, inputs: Path) -> Timed[str]:
        if candidate.is_reference:
            reference = references.timed(self._context, inputs)
            return Timed(name=candidate.name, engine=reference.engine, params=reference.params)
        return _timed(self._context, candidate, candidate.name, inputs, role=_FOLDER)


_WORTH = 0.98
"""Smaller gains in the short comparison are noise."""


def contender(candidate: Candidate, verdict: str, *, verified: bool, seconds: float | None = None) -> Contender:
    engine = ONNX if candidate.is_reference else catalogue.RUNNING[candidate.runtime]
    return Contender(
        name=candidate.name, tuner=None, engine=engine, rewritten=candidate.model == bundle.REWRITTEN,
        precision=str(candidate.precision), seconds=seconds, verified=verified, verdict=verdict,
    )  # fmt: skip


def _timed(
    context: JobContext, candidate: Candidate, name: timing.Name, inputs: Path, *, role: str
) -> Timed[timing.Name]:
    engine = context.engines.get(catalogue.RUNNING[candidate.runtime], role=role)
    return timing.compiled(name, engine, _folder(context, candidate), inputs, place=_place(context, candidate))


def _place(context: JobContext, candidate: Candidate) -> dict[str, object]:
    return {"threads": context.threads, "runtime": str(candidate.runtime)}


def _folder(context: JobContext, candidate: Candidate) -> Path:
    return context.folder / _FOLDER / "-".join(candidate.name.replace(",", "").split())


def _write(context: JobContext, candidate: Candidate) -> Path:
    """Write the candidate's folder, in which ``tunesmith.runtime`` finds what it finds in a bundle."""
    folder, file = _folder(context, candidate), model(context, candidate.model)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / candidate.model).unlink(missing_ok=True)
    (folder / candidate.model).symlink_to(file.absolute())
    placement = context.placement
    runtime = OtherRuntime(
        name=str(candidate.runtime), version=candidate.version, model=candidate.model, threads=context.threads,
        precision=str(candidate.precision), options=candidate.options,
    )  # fmt: skip
    manifest = Manifest(
        model_digest=context.model.digest, model_name=context.model.name, variant=str(candidate.variant),
        target=placement.target.text, threads=context.threads, device_key=placement.device.key,
        toolchain={"engine": catalogue.RUNNING[candidate.runtime]}, precision=str(candidate.precision),
        inputs=context.inputs, outputs=context.outputs, created_by=f"tunesmith {release.VERSION}",
        runtime=runtime, files={candidate.model: bundle.file_digest(file)},
    )  # fmt: skip
    (folder / bundle.MANIFEST).write_text(json.dumps(asdict(manifest)))
    return folder
