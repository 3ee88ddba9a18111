"""Lines that TVM itself wrote: AutoTVM and Ansor by 0.19, MetaSchedule by 0.27."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.records import TrialError
from tuner.native import ansor, autotvm, metaschedule
from tuner.native.lines import DEEPEST, LONGEST_LINE_BYTES, NativeRecord, Refused, as_unbuildable, as_wrong

LINES = Path(__file__).parent / "lines"
AUTOTVM = (LINES / "autotvm.jsonl").read_text().splitlines()
ANSOR = (LINES / "ansor.jsonl").read_text().splitlines()
WORKLOADS = (LINES / metaschedule.WORKLOADS_FILE).read_text().splitlines()
RECORDS = (LINES / metaschedule.RECORDS_FILE).read_text().splitlines()
KEY = "9593177933350849261"
METASCHEDULE = [metaschedule.with_key(line, [KEY]) for line in RECORDS]

Read = Callable[[str], NativeRecord]
FORMATS: dict[str, tuple[Read, list[str]]] = {
    "autotvm": (autotvm.read, AUTOTVM),
    "ansor": (ansor.read, ANSOR),
    "metaschedule": (metaschedule.read, METASCHEDULE),
}


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> tuple[Read, list[str]]:
    return FORMATS[request.param]


def test_autotvm_lines_say_what_tvm_wrote() -> None:
    first, *_, failed = map(autotvm.read, AUTOTVM)
    assert first.workload_key == (
        '["dense_pack.x86",[["TENSOR",[1,512],"float32"],["TENSOR",[16,512],"float32"],null,"float32"]]'
    )
    assert (first.target, first.threads, first.tvm) == ("llvm -mcpu=skylake-avx512", 2, "0.19.0")
    assert (first.latencies, first.error) == ((0.0012345, 0.001, 0.0011), None)
    assert first.finished_at is not None
    assert first.finished_at.timestamp() == 1700000000.5
    assert (failed.latencies, failed.error) == ((), TrialError.RUN_ERROR)


def test_ansor_lines_say_what_tvm_wrote() -> None:
    first, _, failed = map(ansor.read, ANSOR)
    assert first.workload_key == '["mm", 64, 64, 64]'
    assert (first.target, first.threads) == ("llvm -mcpu=skylake-avx512", 2)
    assert (first.latencies, failed.error) == ((0.001, 0.0012), TrialError.RUN_ERROR)


def test_metaschedule_lines_say_what_tvm_wrote() -> None:
    assert metaschedule.read_workload(WORKLOADS[0]) == (KEY, WORKLOADS[0])
    first, failed, _ = map(metaschedule.read, METASCHEDULE)
    assert (first.workload_key, first.target, first.threads) == (KEY, "llvm -mcpu=skylake-avx512", 2)
    assert (first.latencies, failed.error) == ((0.001, 0.0012), TrialError.UNKNOWN)


def test_a_length_may_have_the_byte_of_a_brace() -> None:
    graph = '{"root_index":0,"nodes":[{"type":"ffi.String","data":"a"}]}'.ljust(256 + ord("{"))
    module = base64.b64encode(len(graph).to_bytes(8, "little") + graph.encode()).decode()
    line = json.dumps(["1", module])
    assert metaschedule.read_workload(line) == ("1", line)


def test_metaschedule_lines_go_back_digit_for_digit() -> None:
    assert list(metaschedule.with_positions(METASCHEDULE, {KEY: 0})) == RECORDS
    spaced = metaschedule.with_key(f" [ 0 , {RECORDS[0][3:]}", [KEY])
    assert list(metaschedule.with_positions([spaced], {KEY: 7})) == ["[7," + RECORDS[0][3:]]
    assert list(metaschedule.with_positions(METASCHEDULE, {})) == []


def test_schedules_differ_by_their_digests(form: tuple[Read, list[str]]) -> None:
    read, lines = form
    assert len({read(line).schedule_digest for line in lines}) == len(lines)


def test_a_measurement_does_not_change_the_digest(form: tuple[Read, list[str]]) -> None:
    read, lines = form
    row = json.loads(lines[0])
    costs = row[1][1] if isinstance(row, list) else row["result" if "result" in row else "r"][0]
    costs.append(0.5)
    again = read(json.dumps(row))
    assert again.schedule_digest == read(lines[0]).schedule_digest
    assert again.latencies[-1] == 0.5


@pytest.mark.parametrize("line", ["", "{}", "[]", "null", "3", '"x"', "{", "[1,2", "NaN", "[NaN]", "\x00", "[[[]]]"])
def test_what_is_no_line_is_refused(form: tuple[Read, list[str]], line: str) -> None:
    with pytest.raises(Refused):
        form[0](line)


def test_hostile_sizes_are_refused(form: tuple[Read, list[str]]) -> None:
    read, lines = form
    for line in (
        "[" * 100_000,
        "[" * 900 + "]" * 900,
        "[" * (DEEPEST + 2) + "]" * (DEEPEST + 2),
        '{"a":' * 500 + "1" + "}" * 500,
        "9" * 5000,
        lines[0] + " " * LONGEST_LINE_BYTES,
    ):
        with pytest.raises(Refused):
            read(line)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [here, *(path for name, each in inner for path in paths(each, (*here, name)))]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_any_damage_is_refused_or_read_as_a_sound_record(name: str, data: st.DataObject) -> None:
    read, lines = FORMATS[name]
    row = json.loads(data.draw(st.sampled_from(lines)))
    places = paths(row)[1:]
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(places))
        holder = copy.deepcopy(row)
        inner = holder
        try:
            for step in way:
                inner = inner[step]
            inner[last] = data.draw(JUNK)
        except (KeyError, IndexError, TypeError):
            continue
        row = holder
    try:
        found = read(json.dumps(row))
    except Refused:
        return
    assert found.workload_key
    assert bool(found.latencies) == (found.error is None)
    assert all(0 < seconds < 1e9 for seconds in found.latencies)
    assert found.threads is None or 1 <= found.threads <= 1024
    assert len(found.schedule_digest) == 64
    assert found.target.startswith(("llvm", "cuda"))


@pytest.mark.parametrize("name", FORMATS)
@given(text=st.text(max_size=200))
def test_any_text_is_refused(name: str, text: str) -> None:
    with pytest.raises(Refused):
        FORMATS[name][0](text)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('["1"]', "not a workload"),
        ('["1",2]', "not a workload"),
        ('["x","AAAA"]', "not a number"),
        ('["1","!!"]', "base64"),
        ('["1",""]', "empty"),
    ],
)
def test_a_workload_that_is_none_is_refused(line: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        metaschedule.read_workload(line)


@pytest.mark.parametrize("kind", ["ffi.Module", "ffi\\u002eModule", "ffi.Function", "ir.EnvFunc"])
def test_a_workload_that_brings_a_program_along_is_refused(kind: str) -> None:
    """TVM rebuilds any object that it knows, compiled modules and functions by their names among them."""
    graph = f'{{"root_index":1,"nodes":[{{"type":"ffi.String","data":"a"}},{{"type":"{kind}","data":"AgAA"}}]}}'
    module = base64.b64encode(len(graph).to_bytes(8, "little") + graph.encode()).decode()
    with pytest.raises(Refused, match="load as a program"):
        metaschedule.read_workload(json.dumps(["1", module]))
    broken = base64.b64encode(b"\0" * 8 + graph[:-1].encode()).decode()
    with pytest.raises(Refused, match="not TVM's JSON"):
        metaschedule.read_workload(json.dumps(["1", broken]))


def test_a_pickled_line_of_autotvm_is_refused() -> None:
    """As its logs of before 0.6 are; unpickling runs what it says."""
    pickled = base64.b64encode(b"cposix\nsystem\n(S'id'\ntR.").decode()
    for line in (f"llvm\t{pickled}\t{pickled}\t{pickled}", f"llvm\t{pickled}\t{pickled}\t{pickled}\t0.2"):
        with pytest.raises(Refused, match="not JSON"):
            autotvm.read(line)


@pytest.mark.parametrize("tuner", FORMATS)
def test_a_line_becomes_that_of_a_failure_of_the_same_schedule(tuner: str) -> None:
    read, (line, *_) = FORMATS[tuner]
    before = read(line)
    assert before.latencies
    for rewrite, error in ((as_wrong, TrialError.WRONG_RESULT), (as_unbuildable, TrialError.BUILD_ERROR)):
        after = read(rewrite(tuner, line))
        # Lines of MetaSchedule have no kinds of failure.
        assert (after.latencies, after.error) == ((), TrialError.UNKNOWN if tuner == "metaschedule" else error)
        assert (after.workload_key, after.schedule_digest) == (before.workload_key, before.schedule_digest)
        assert (after.target, after.threads, after.finished_at) == (before.target, before.threads, before.finished_at)


@pytest.mark.parametrize("place", ["-1", "1", "true", "0.0", '"0"', "null", "[0]"])
def test_a_record_of_no_workload_is_refused(place: str) -> None:
    with pytest.raises(Refused, match="not in the other file"):
        metaschedule.with_key(f"[{place},{RECORDS[0][3:]}", [KEY])
    with pytest.raises(Refused, match="was rejected"):
        metaschedule.with_key(RECORDS[0], [None])
