"""A build that may be published as the tuned one: what it is made with, and where it lies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from domain.jobs import Precision, Tuner
from worker.pipeline import arms
from worker.pipeline.arms import Arm
from worker.pipeline.work import TUNED, Work

REWRITTEN = "rewritten"
"""The rewritten network without any record."""


@dataclass(frozen=True, kw_only=True)
class Build:
    name: str
    engine: str
    precision: str
    tuner: str | None = None
    layout: str | None = None
    graph_layout: str | None = None
    """How the engine chooses among records of blocked convolutions; None where the choice is the engine's."""
    rewritten: bool = False
    estimate: float | None = None
    """Seconds of one run, from its operators."""
    trials: int = 0
    seconds_tuned: float = 0.0
    records: int = 0
    """Those that the engine chose."""

    @property
    def folder(self) -> str:
        """Within the work folder; also the role of the process that runs it."""
        return f"{TUNED}-{re.sub('[^a-z0-9]+', '-', self.name.lower())}"

    @property
    def records_file(self) -> str:
        return f"{self.folder}.jsonl"

    def path(self, work: Work) -> Path:
        return work.folder / self.folder

    def dump(self) -> dict[str, Any]:
        return asdict(self)

    def view(self, work: Work) -> Work:
        """The job as it is when this is its only build."""
        tuner = Tuner(self.tuner) if self.tuner else _any_tuner(self.engine)
        return arms.view(work, Arm(tuner=tuner, layout=self.layout, precision=Precision(self.precision)))

    def params(self, work: Work) -> dict[str, Any]:
        """As the engines' methods take them."""
        view = self.view(work)
        params = view.build_params(view.tuner)
        if self.graph_layout:
            params["options"] = {**params["options"], "graph_layout": self.graph_layout}
        return params if self.tuner else {**params, "tuner": None}


def load(data: Mapping[str, Any]) -> Build:
    return Build(**data)


def _any_tuner(engine: str) -> Tuner:
    """Builds of tuners are what the engines may rewrite."""
    return next(tuner for tuner in Tuner.AUTO.considered if tuner.engine == engine)
