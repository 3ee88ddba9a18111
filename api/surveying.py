"""What engines say of a model before it is a job: whether they import it, and which tuning tasks they find.

Tasks are kept under the key that jobs look them up by, so that a plan makes the job faster.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from api.placing import Place
from api.services import Services
from domain import errors, extractions
from domain.jobs import JobRequest, Tuner
from domain.models import Model
from domain.ports import Canceled
from domain.targets import Toolchain
from domain.tuning_tasks import ExtractedTask
from storage import extractions as stored
from storage import workloads
from tuner.extraction import Build, Questions, questions

_CALLERS = (errors.InvalidRequest, errors.EngineError, errors.Unavailable)
"""What may go wrong with one engine without making a plan impossible."""


@dataclass(kw_only=True)
class Survey:
    """One engine's answers."""

    engine: str
    toolchain: Toolchain | None = None
    imports: bool | None = None
    """None when it could not be asked."""
    failure: errors.TunesmithError | None = None
    """Why it does not import the model, or could not be asked."""
    found: dict[Tuner, list[ExtractedTask]] = field(default_factory=dict)
    failures: dict[Tuner, errors.TunesmithError] = field(default_factory=dict)


class Surveyor:
    """Asks engines about one request. Raises what preparing the model raises, PlannerBusy, and Unavailable when the
    server stops."""

    def __init__(self, services: Services, request: JobRequest, model: Model, place: Place | None) -> None:
        self._services = services
        self._request = request
        self._model = model
        self._place = place
        given = request.input_shapes
        # As the prepared model has them: every input, all dimensions known by now.
        self._shapes = {
            spec.name: given.get(spec.name) or [int(size or 0) for size in spec.shape] for spec in model.facts.inputs
        }

    def survey(self, tuners: Sequence[Tuner]) -> list[Survey]:
        """One for each engine of these tuners, in their order."""
        engines = list(dict.fromkeys(tuner.engine for tuner in tuners))
        of = {engine: [tuner for tuner in tuners if tuner.engine == engine] for engine in engines}
        known = {engine: self._known(engine, of[engine]) for engine in engines}
        if all(survey is not None for survey in known.values()):
            return [survey for survey in known.values() if survey is not None]
        with self._slot(), tempfile.TemporaryDirectory(prefix="tunesmith-plan-") as folder:
            prepared = Path(folder) / f"prepared{self._model.facts.format.suffix}"
            path = self._services.blobs.path(self._model.digest)
            self._services.planner.prepare(path, self._request.input_shapes, prepared)
            return [known[engine] or self._asked(engine, of[engine], prepared) for engine in engines]

    def _known(self, engine: str, tuners: Sequence[Tuner]) -> Survey | None:
        """What is stored, if that answers everything; the engine must have said once which plugins it has."""
        toolchain = self._place.toolchains.get(engine) if self._place else None
        plugins = self._services.plugins.get(engine)
        if toolchain is None or plugins is None:
            return None
        survey = Survey(engine=engine, toolchain=toolchain, imports=True)
        with self._services.database.reading() as session:
            for tuner in tuners:
                tasks = stored.get(session, self._key(toolchain, tuner, plugins))
                if tasks is None:
                    return None
                survey.found[tuner] = tasks
        return survey

    def _asked(self, engine: str, tuners: Sequence[Tuner], prepared: Path) -> Survey:
        survey = Survey(engine=engine)
        try:
            with questions(self._services.planner, engine, self._services.stopping.is_set) as asking:
                survey.toolchain = _toolchain(asking)
                self._services.plugins[engine] = [str(plugin) for plugin in asking.hello.get("plugins", [])]
                asking.check(prepared)
                survey.imports = True
                for tuner in tuners:
                    self._extract(asking, survey, tuner, prepared)
        except Canceled:
            raise errors.Unavailable("the server stops") from None
        except _CALLERS as error:
            survey.failure = error
            survey.imports = False if isinstance(error, errors.InvalidRequest) else survey.imports
        return survey

    def _extract(self, asking: Questions, survey: Survey, tuner: Tuner, prepared: Path) -> None:
        if self._place is None or survey.toolchain is None:
            return
        plugins = self._services.plugins[survey.engine]
        key = self._key(survey.toolchain, tuner, plugins)
        with self._services.database.reading() as session:
            tasks = stored.get(session, key)
        if tasks is None:
            build = Build(
                model=prepared,
                target=self._place.target.text,
                threads=self._place.target.threads,
                precision=self._request.precision,
                options=self._request.tuner_options,
            )
            try:
                found = asking.extract(build, tuner)
            except errors.InvalidRequest as error:
                survey.failures[tuner] = error
                return
            tasks = list(found.tasks)
            with self._services.database.transaction() as session:
                stored.put(session, key, tasks, now=datetime.now(UTC))
                workloads.put_many(session, found.definitions, tuner=tuner.value)
        survey.found[tuner] = tasks

    def _key(self, toolchain: Toolchain, tuner: Tuner, plugins: Sequence[str]) -> str:
        assert self._place is not None  # noqa: S101 - both callers looked
        return extractions.key_of(
            model_digest=self._model.digest,
            input_shapes=self._shapes,
            target=self._place.target,
            toolchain=toolchain,
            tuner=tuner,
            precision=self._request.precision,
            options=self._request.tuner_options,
            plugins=plugins,
        )

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._services.plan_slots.acquire(blocking=False):
            raise errors.PlannerBusy("this server is making as many plans as it may")
        try:
            yield
        finally:
            self._services.plan_slots.release()


def _toolchain(asking: Questions) -> Toolchain:
    facts = asking.hello["toolchain"]
    return Toolchain(engine=str(facts["engine"]), tvm=str(facts["tvm"]), llvm=str(facts["llvm"]))
