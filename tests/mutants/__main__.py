"""Mutation testing of the code that must not be wrong: ``./run mutants``.

cosmic-ray finds the places and makes the mutants. A fixed seed picks as many of each area, no two at one place. Each
mutant lives in a copy of the checkout, where the tests of its area run until one fails: those of ``./run test`` first,
then those of ``./run test --all``. Exit status: 1 where the quick tier kills less than 80 % of the mutants, or where
all tests let one live that ``equivalent.txt`` does not list.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cosmic_ray import mutating, plugins
from cosmic_ray.commands import init
from cosmic_ray.operators.operator import Operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec

from tests.mutants.areas import AREAS, Area

_ROOT = Path(__file__).resolve().parents[2]
_EQUIVALENT = Path(__file__).with_name("equivalent.txt")
_COUNT = 40
_SEED = 15
_LEAST_QUICK = 0.8
_MOST_SECONDS = 1800
_IN_ANNOTATIONS = "core/ReplaceBinaryOperator_BitOr"
"""``X | None`` is never evaluated in these modules: such mutants change nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    area: str
    mutant: str
    """Module, line, operator: as ``equivalent.txt`` names it."""
    killed_by: str
    """``quick``, ``all``, or nothing."""
    is_equivalent: bool


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--area", choices=sorted(AREAS), action="append", help="only these areas")
    parser.add_argument("--quick", action="store_true", help="only the quick tier")
    parser.add_argument("--list", action="store_true", help="print the mutants and test nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON document at the end")
    asked = parser.parse_args()
    chosen = [(name, spec) for name, spec in _sample() if not asked.area or name in asked.area]
    if asked.list:
        for name, spec in chosen:
            print(f"{name:13} {_name(spec)}")  # noqa: T201
        return 0
    known = set(_EQUIVALENT.read_text().splitlines())
    verdicts = []
    for name, spec in chosen:
        verdict = Verdict(
            area=name,
            mutant=_name(spec),
            killed_by=_killer(AREAS[name], spec, tiers=("quick",) if asked.quick else ("quick", "all")),
            is_equivalent=_name(spec) in known,
        )
        verdicts.append(verdict)
        print(f"{verdict.killed_by or 'survived':9} {name:13} {verdict.mutant}", file=sys.stderr)  # noqa: T201
    return _report(verdicts, as_json=asked.json, quick_only=asked.quick)


def _sample() -> list[tuple[str, MutationSpec]]:
    """The same mutants for the same code."""
    chooser = random.Random(_SEED)  # noqa: S311 - nothing secret
    chosen: list[tuple[str, MutationSpec]] = []
    for position, (name, area) in enumerate(sorted(AREAS.items())):
        count = _COUNT // len(AREAS) + (position < _COUNT % len(AREAS))
        places: dict[tuple[str, tuple[int, int]], list[MutationSpec]] = {}
        for spec in _mutations(area):
            places.setdefault((str(spec.module_path), spec.start_pos), []).append(spec)
        in_turn = chooser.sample(sorted(places), len(places))
        some = (chooser.choice(places[place]) for place in in_turn)
        chosen += [(name, spec) for spec in itertools.islice(filter(_compiles, some), count)]
    return chosen


def _mutations(area: Area) -> list[MutationSpec]:
    with use_db(":memory:", WorkDB.Mode.create) as database:
        init([Path(module) for module in area.modules], database, {})
        found = [spec for item in database.work_items for spec in item.mutations]
    return [spec for spec in found if not spec.operator_name.startswith(_IN_ANNOTATIONS)]


def _compiles(spec: MutationSpec) -> bool:
    """Whether it is a program: the star before keyword-only parameters looks like an operator too."""
    code = mutating.mutate_code(Path(spec.module_path).read_text(), _operator(spec), spec.occurrence)
    try:
        compile(code, spec.module_path, "exec")
    except SyntaxError:
        return False
    return True


def _operator(spec: MutationSpec) -> Operator:
    return plugins.get_operator(spec.operator_name)(**spec.operator_args)


def _name(spec: MutationSpec) -> str:
    line = Path(spec.module_path).read_text().splitlines()[spec.start_pos[0] - 1].strip()
    return f"{spec.module_path}: {spec.operator_name.removeprefix('core/')} #{spec.occurrence}: {line}"


def _killer(area: Area, spec: MutationSpec, tiers: tuple[str, ...]) -> str:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(_ROOT, copy, ignore=shutil.ignore_patterns(".git", ".mypy_cache", "__pycache__", "build"))
        mutating.apply_mutation(copy / spec.module_path, _operator(spec), spec.occurrence)
        for tier in tiers:
            wanted = ["-m", "unit or integration or smoke"] if tier == "quick" else []
            if _fails(copy, [*wanted, *(f"tests/{each}" for each in area.tests)]):
                return tier
    return ""


def _fails(copy: Path, arguments: list[str]) -> bool:
    command = ["./run", "test", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    try:
        ended = subprocess.run(command, cwd=copy, capture_output=True, timeout=_MOST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    return ended.returncode == 1


def _report(verdicts: list[Verdict], *, as_json: bool, quick_only: bool) -> int:
    counted = [each for each in verdicts if not each.is_equivalent]
    quick = sum(each.killed_by == "quick" for each in counted)
    living = [each.mutant for each in counted if not each.killed_by]
    if as_json:
        print(json.dumps([dataclasses.asdict(each) for each in verdicts], indent=1))  # noqa: T201
    print(  # noqa: T201
        f"{len(verdicts)} mutants, {len(verdicts) - len(counted)} equivalent; "
        f"killed by the quick tier: {quick}, by all tests: {len(counted) - len(living)}",
        file=sys.stderr,
    )
    return int(quick < _LEAST_QUICK * len(counted) or (bool(living) and not quick_only))


if __name__ == "__main__":
    sys.exit(main())
