"""The data set of a job: which of its rows calibrate and which judge, and the files of these runs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from domain import data_sets
from domain.artifacts import DataUse
from domain.data_sets import DataSet, Fit, Split
from domain.jobs import CALIBRATED, Precision
from domain.models import TensorSpec
from storage import data_sets as stored
from worker.engines import ONNX
from worker.pipeline.context import JobContext

_SPLIT_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class Data:
    data_set: DataSet
    inputs: tuple[TensorSpec, ...]
    fit: Fit
    split: Split

    @property
    def use(self) -> DataUse:
        return DataUse(
            id=self.data_set.id,
            name=self.data_set.name,
            digest=self.data_set.digest,
            rows=self.data_set.facts.rows,
            calibration_rows=len(self.split.calibration) * self.fit.rows,
            judging_rows=len(self.split.judging) * self.fit.rows,
        )

    def first_rows(self, runs: Sequence[int]) -> tuple[int, ...]:
        return tuple(run * self.fit.rows for run in runs)


def of(context: JobContext, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Data | None:
    """Return the job's data set, with what the prepared model's ``inputs`` make of it; None without one.

    Raises DataSetNotFound and DataMismatch.
    """
    wanted = context.request.data
    if wanted is None:
        return None
    with context.database.reading() as session:
        data_set = stored.of_job(session, wanted)
    fit = data_sets.fit(data_set.facts, inputs, outputs)
    calibrates = context.request.precision in (*CALIBRATED, Precision.AUTO)
    return Data(
        data_set=data_set,
        inputs=tuple(inputs),
        fit=fit,
        split=data_sets.split(data_set.facts, fit, calibrates=calibrates),
    )


def write(context: JobContext, data: Data, runs: Sequence[int], folder: Path) -> tuple[list[Path], list[Path]]:
    """Write the inputs of these runs and, if there are any, their labels. Raises BlobNotFound, EngineError."""
    params = {
        "path": str(_copied(context, data)), "inputs": [asdict(spec) for spec in data.inputs], "rows": data.fit.rows,
        "runs": list(runs), "out_dir": str(folder),
    }  # fmt: skip
    answer = context.ask(context.engines.get(ONNX), "split_rows", params, timeout=_SPLIT_SECONDS)
    return [Path(each) for each in answer["paths"]], [Path(each) for each in answer["labels"]]


def _copied(context: JobContext, data: Data) -> Path:
    """The data set in the work folder: engines do not see the store, where others' files lie."""
    path = context.folder / f"{data.data_set.id}.npz"
    if not path.exists():
        partial = path.with_name(f"partial-{path.name}")
        with context.blobs.local(data.data_set.digest) as original:
            shutil.copyfile(original, partial)
        partial.replace(path)
    return path
