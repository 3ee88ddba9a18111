"""Verification of compiled variants against the reference."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from domain import data_sets, errors
from domain.artifacts import (
    LARGEST_ERROR,
    LabelledAccuracy,
    OutputError,
    RowsCompared,
    Variant,
    Verification,
    WorstRow,
)
from domain.jobs import AccuracyGate, Precision
from domain.models import TensorSpec
from domain.ports import Engine

SEEDS = (0, 1, 2)
NARROW_SEEDS = tuple(range(16))
CALIBRATION_SEEDS = tuple(range(1000, 1008))
"""Seeds of calibration inputs, which are not used for verification."""
LEAST_WITHIN = 0.99
"""Share of a data set's rows that a build of reduced precision must have within its limit, as of top-1: of thousands of
rows, some are so near a tie that rounding decides them."""
MOST_ROWS_OF_F32 = 32
"""Runs of a data set that judge a build in f32, whose limits need several runs of the reference each."""
_MOST_WORST = 5
_SEED_SECONDS, _RUN_SECONDS = 120.0, 600.0
_PERTURBED_SECONDS = 30.0
"""Time for the runs that show the reference's own rounding errors."""
_NO_GATE = AccuracyGate()
_NO_KINDS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """Inputs generated from seeds."""

    paths: list[Path]
    """``.npz`` files, one per seed."""
    kinds: dict[str, str]
    """Kind of values of each input."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Runs of a data set."""

    first: tuple[int, ...]
    """Index of the first row of each run."""
    each: int
    """Rows of a run."""
    inputs: tuple[Path, ...]
    expected: tuple[Path, ...]
    """Outputs of the reference."""
    labels: tuple[Path, ...] = ()
    """None without labels."""

    def some(self, most: int) -> Rows:
        """Return at most ``most`` of the runs, spread evenly."""
        places = data_sets.some(range(len(self.first)), most)

        def chosen(of: Sequence[Path]) -> tuple[Path, ...]:
            return tuple(of[place] for place in places) if of else ()

        return replace(
            self,
            first=tuple(self.first[place] for place in places),
            inputs=chosen(self.inputs),
            expected=chosen(self.expected),
            labels=chosen(self.labels),
        )


def seeds_for(precision: Precision, *, with_data: bool = False) -> tuple[int, ...]:
    """Return the seeds of a job.

    Reduced precisions are also judged by shares of rows: by those of a data set, or by more seeded inputs.
    """
    return SEEDS if precision is Precision.F32 or with_data else NARROW_SEEDS


def seed_inputs(
    reference: Engine,
    inputs: Sequence[TensorSpec],
    folder: Path,
    *,
    model: Path | None = None,
    seeds: Sequence[int] = SEEDS,
) -> Seeded:
    """Generate suitable input arrays with the onnx engine. Raises EngineError.

    ``model`` is the prepared file, whose first operators determine the kinds of values better than names and shapes.
    """
    specs = [asdict(spec) for spec in inputs]
    params = {"inputs": specs, "seeds": list(seeds), "out_dir": str(folder), "model": str(model) if model else None}
    answer = reference.request("make_inputs", params, timeout=_SEED_SECONDS)
    return Seeded(paths=[Path(path) for path in answer["paths"]], kinds=dict(answer.get("kinds", {})))


def run_reference(
    reference: Engine,
    model: Path,
    inputs: Sequence[Path],
    folder: Path,
    *,
    threads: int,
    canceled: Callable[[], bool] | None = None,
) -> list[Path]:
    """Run the reference on each of ``inputs``. Raises EngineError, Canceled."""
    return _run(reference, {"path": str(model), "threads": threads}, inputs, folder, canceled)


def run_perturbed(
    reference: Engine,
    model: Path,
    inputs: Sequence[Path],
    expected: Sequence[Path],
    *,
    threads: int,
    canceled: Callable[[], bool] | None = None,
) -> list[Path]:
    """Run the reference with rounded operands, beside its ``expected`` outputs, and return the files with the results.

    ``verify`` derives the limits of f32 from them. Raises EngineError, Canceled.
    """
    folders = [_perturbed(path) for path in expected]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    params = {
        "path": str(model), "inputs": [str(path) for path in inputs], "folders": [str(folder) for folder in folders],
        "threads": threads, "seconds": _PERTURBED_SECONDS,
    }  # fmt: skip
    try:
        answer = reference.request("run_perturbed", params, timeout=_RUN_SECONDS, canceled=canceled)
    except errors.EngineError:
        # A file may be incomplete.
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return [Path(path) for path in answer["paths"]]


def _perturbed(expected: Path) -> Path:
    """Folder of the perturbed runs on the same inputs."""
    return expected.with_suffix(".runs")


def run_plain(
    engine: Engine,
    bundle: Path,
    inputs: Sequence[Path],
    folder: Path,
    *,
    threads: int = 1,
    canceled: Callable[[], bool] | None = None,
) -> list[Path]:
    """Run a build as the reference, with an engine on this machine's CPU. Raises EngineError, Canceled."""
    params = {"bundle": str(bundle), "threads": threads, "target": "llvm", "runner": None, "number": 1, "repeat": 0}
    return _run(engine, params, inputs, folder, canceled)


def _run(
    engine: Engine,
    params: Mapping[str, Any],
    inputs: Sequence[Path],
    folder: Path,
    canceled: Callable[[], bool] | None,
) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for position, given in enumerate(inputs):
        paths.append(folder / f"expected-{position}.npz")
        files = {"inputs": str(given), "outputs": str(paths[-1])}
        engine.request("run", {**params, **files}, timeout=_RUN_SECONDS, canceled=canceled)
    return paths


def verify(
    reference: Engine,
    compiler: Engine,
    *,
    variant: Variant,
    bundle: Path,
    inputs: Sequence[Path],
    expected: Sequence[Path],
    folder: Path,
    place: Mapping[str, Any],
    precision: str = "f32",
    gate: AccuracyGate = _NO_GATE,
    model: Path | None = None,
    kinds: Mapping[str, str] = _NO_KINDS,
    seeds: Sequence[int] = SEEDS,
    rows: Rows | None = None,
    canceled: Callable[[], bool] | None = None,
) -> Verification:
    """Run a variant on all inputs and compare its outputs with the reference; keeps the maximum errors over all runs.

    ``bundle`` is the folder of ``mod.so``; ``inputs``, ``expected`` and ``seeds`` correspond. ``place`` has ``threads``
    and, unless it is this machine's CPU, ``target`` and ``runner``. ``precision`` determines the tolerances that
    ``gate`` does not set; the prepared ``model`` determines which outputs are a classifier's. With ``rows``, builds of
    reduced precision are judged by these alone, and ``LEAST_WITHIN`` of them must be within the limit, unless the gate
    sets one; those in f32 are judged by a part of the rows, too. A failed verification is a result,
    not an error. Raises EngineError, Canceled.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if rows is not None and precision != "f32":
        inputs, expected, seeds = (), (), ()
    elif rows is not None:
        rows = rows.some(MOST_ROWS_OF_F32)
    found: dict[str, _Found] = {}
    numbers = itertools.count()

    def compare(given: Path, wanted: Path, labels: Path | None = None) -> dict[str, Any]:
        actual = folder / f"{variant}-{next(numbers)}.npz"
        params = {
            "bundle": str(bundle), "inputs": str(given), "outputs": str(actual),
            **place, "number": 1, "repeat": 0,
        }  # fmt: skip
        compiler.request("run", params, timeout=_RUN_SECONDS, canceled=canceled)
        pair = {
            "expected": str(wanted), "actual": str(actual), "precision": precision, "max_rel": gate.max_rel,
            "model": str(model) if model else None, "runs": str(_perturbed(wanted)),
            **({"labels": str(labels)} if labels else {}),
        }  # fmt: skip
        compared = reference.request("compare", pair, timeout=_RUN_SECONDS, canceled=canceled)
        for data in compared["outputs"]:
            found.setdefault(str(data["output"]), _Found()).add(data)
        return compared

    for given, wanted in zip(inputs, expected, strict=True):
        compare(given, wanted)
    compared_rows = None
    if rows is not None:
        labels = rows.labels or (None,) * len(rows.first)
        compared_rows = _rows_compared(
            rows, [compare(*each) for each in zip(rows.inputs, rows.expected, labels, strict=True)]
        )
    by_rows = rows is not None and precision != "f32" and gate.max_rel is None
    outputs = tuple(each.error(name, gate.top1, LEAST_WITHIN if by_rows else None) for name, each in found.items())
    return Verification(
        variant=variant, seeds=tuple(seeds), outputs=outputs, precision=precision, inputs=dict(kinds),
        rows=compared_rows,
    )  # fmt: skip


def on_labels(
    reference: Engine,
    compiler: Engine,
    *,
    variant: Variant,
    bundle: Path,
    folder: Path,
    place: Mapping[str, Any],
    rows: Rows,
) -> RowsCompared:
    """Run a variant on labelled rows, without a reference: both accuracies are the build's.

    ``folder`` and ``place`` as in ``verify``. Raises EngineError.
    """
    answers = []
    for number, (given, labels) in enumerate(zip(rows.inputs, rows.labels, strict=True)):
        actual = str(folder / f"{variant}-{number}.npz")
        params = {"bundle": str(bundle), "inputs": str(given), "outputs": actual, **place, "number": 1, "repeat": 0}
        compiler.request("run", params, timeout=_RUN_SECONDS)
        pair = {"expected": actual, "actual": actual, "labels": str(labels)}
        answers.append(reference.request("compare", pair, timeout=_RUN_SECONDS))
    return replace(_rows_compared(rows, answers), worst=())


def _rows_compared(rows: Rows, answers: Sequence[Mapping[str, Any]]) -> RowsCompared:
    errors = [
        WorstRow(row=row, output=str(data["output"]), max_rel=_bounded(data["max_rel"]))
        for row, answer in zip(rows.first, answers, strict=True)
        for data in answer["outputs"]
    ]
    return RowsCompared(
        rows=len(rows.first) * rows.each,
        elements=sum(int(data.get("elements", 0)) for answer in answers for data in answer["outputs"]),
        worst=tuple(sorted(errors, key=lambda each: -each.max_rel)[:_MOST_WORST]),
        labelled=_labelled([answer["labelled"] for answer in answers if "labelled" in answer]),
    )


def _labelled(answers: Sequence[Mapping[str, Any]]) -> LabelledAccuracy | None:
    """Sum up the runs' accuracies on the labels; None without labels."""
    if not answers:
        return None
    count = sum(int(answer["count"]) for answer in answers)

    def share(side: str, name: str) -> float | None:
        found = [answer[side].get(name) for answer in answers]
        return None if None in found else _bounded(sum(found) / count)

    measure = "error" if "error" in answers[0]["reference"] else "top1"
    return LabelledAccuracy(
        output=str(answers[0]["output"]),
        measure=measure,
        count=count,
        reference=share("reference", measure) or 0.0,
        build=share("build", measure) or 0.0,
        reference_top5=share("reference", "top5"),
        build_top5=share("build", "top5"),
    )


class _Found:
    """Comparison of one output over all runs."""

    def __init__(self) -> None:
        self._compared: list[dict[str, Any]] = []

    def add(self, data: dict[str, Any]) -> None:
        self._compared.append(data)

    def error(self, name: str, least_top1: float | None, least_within: float | None) -> OutputError:
        """``least_within``: share of rows that suffices within the limit; None if every element must be."""
        first = self._compared[0]
        not_compared = not self._sum("finite")
        # A row without numbers has no largest element.
        rows, agreed = (0, 0) if not_compared else (self._sum("rows"), self._sum("agreed"))
        top1 = agreed / rows if rows else None
        kept = top1 is None or least_top1 is None or top1 >= least_top1
        within = None if least_within is None or not_compared else self._sum("within") / max(1, self._sum("parts"))
        is_near = all(bool(each["passed"]) for each in self._compared)
        if within is not None and least_within is not None:
            is_near = within >= least_within and not self._sum("not_finite") and not any(map(_fault, self._compared))
        nearest = max(self._compared, key=lambda each: (not each["passed"], _share(each, "max_rel", "rtol")))
        part = max(self._compared, key=lambda each: _share(each, "rms", "rms_limit"))
        roundings = [float(each["rounding"]) for each in self._compared if "rounding" in each]
        return OutputError(
            output=name,
            dtype=str(first["dtype"]),
            max_abs=max(_bounded(each["max_abs"]) for each in self._compared),
            max_rel=max(_bounded(each["max_rel"]) for each in self._compared),
            atol=float(first["atol"]),
            rtol=float(nearest["rtol"]),
            passed=kept and is_near,
            top1=top1,
            not_finite=self._sum("not_finite"),
            least_top1=least_top1 if rows else None,
            not_compared=not_compared,
            empty=not self._sum("elements"),
            rounding=max(roundings, default=None),
            ties=self._sum("ties"),
            rms=part.get("rms"),
            rms_limit=part.get("rms_limit"),
            part=part.get("part"),
            within=within,
            least_within=None if within is None else least_within,
            fault=next(filter(None, map(_fault, self._compared)), None),
        )

    def _sum(self, name: str) -> int:
        return sum(int(each.get(name, 0)) for each in self._compared)


def _fault(compared: Mapping[str, Any]) -> str | None:
    return str(compared["fault"]) if compared.get("fault") else None


def _share(compared: Mapping[str, Any], error: str, limit: str) -> float:
    """Return an error in multiples of its limit; 0 without a limit."""
    return float(compared[error]) / compared[limit] if compared.get(limit) else 0.0


def _bounded(value: Any) -> float:
    """Limit a number to values that JSON can represent."""
    number = float(value)
    return number if number <= LARGEST_ERROR else LARGEST_ERROR
