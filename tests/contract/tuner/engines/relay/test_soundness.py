"""Schedules that cannot be right are in no search space, and no record of one is ever chosen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside_all

pytestmark = pytest.mark.engine

GROUPED = """
import json, sys
from tuner.engines.relay import choosing, comparing, compiling
from tuner.engines.relay import workloads
from tvm.autotvm.measure import MeasureInput, MeasureResult

def tensor(*shape):
    return ["TENSOR", list(shape), "float32"]

def grouped(outputs, inputs, groups, size=4):
    kernel = tensor(outputs, inputs // groups, 1, 1)
    arguments = [tensor(1, inputs, size, size), kernel, [1, 1], [0, 0, 0, 0], [1, 1], groups, "float32"]
    return json.dumps(["group_conv2d_nchw.x86", arguments], separators=(",", ":"))

def line(task, config, seconds):
    return autotvm.record.encode(MeasureInput(task.target, task, config), MeasureResult((seconds,), 0, 0.0, 0.0))

def anything(key):
    # The space as TVM has it.
    name, arguments = json.loads(key)
    return autotvm.task.create(name, workloads._tuples(arguments), target=TARGET)

def tiles(config):
    return [int(config[name].size[-1]) for name in ("tile_ic", "tile_oc")]
"""
SEARCHES = """
key = grouped(18, 12, 3)
space = workloads.task(key, TARGET).config_space
told = {"all": len(anything(key).config_space), "sound": len(space)}
for search in ("xgb", "ga", "random", "gridsearch"):
    def proposed(history=None):
        search_ = tuner(key, history, search=search)
        found, lines = [], []
        while search_.exhausted is None:
            configs = search_.propose(8)
            found += [tiles(config) for config in configs]
            trials = [search_.learn(each, Measurement(latencies=(1e-3,))) for each in configs]
            search_.update(trials)
            lines += [trial.line for trial in trials]
        return found, lines
    told[search], lines = proposed()
    task = anything(key)
    bad = [task.config_space.get(place) for place in range(task.config_space.range_length)]
    bad = [line(task, config, 1e-9) for config in bad if not workloads.is_sound(task, config)]
    told[search + "-resumed"] = len(proposed(keep(f"{sys.argv[1]}/{search}", lines[:5] + bad[:20]))[0])
print(json.dumps(told))
"""
CHOSEN = """
task = anything(grouped(18, 12, 3))
configs = [task.config_space.get(place) for place in range(task.config_space.range_length)]
bad = next(config for config in configs if tiles(config) == [3, 9])
good = next(config for config in configs if tiles(config) == [2, 6])
pairs = [autotvm.record.decode(line(task, bad, 1e-6)), autotvm.record.decode(line(task, good, 1e-3))]
print(json.dumps([[tiles(own.config) for own, _ in choosing.choose(some)] for some in (pairs, pairs[:1])]))
"""
COMPUTED = """
import random
comparing.set_up()
random.seed(0)
convolution = [[1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"]
keys = [
    ["conv2d_NCHWc.x86", [tensor(1, 12, 6, 6), tensor(20, 12, 3, 3), *convolution]],
    ["depthwise_conv2d_NCHWc.x86", [tensor(1, 12, 6, 6), tensor(12, 1, 3, 3), *convolution]],
    ["dense_pack.x86", [tensor(6, 12), tensor(20, 12), None, "float32"]],
    ["dense_nopack.x86", [tensor(6, 12), tensor(20, 12), None, "float32"]],
    ["batch_matmul.x86", [tensor(2, 6, 12), tensor(2, 10, 12), None, "float32", False, True]],
]
keys = [json.dumps(key, separators=(",", ":")) for key in keys] + [grouped(18, 12, 3), grouped(6, 12, 6)]
told = {}
for key in keys:
    task = workloads.task(key, TARGET)
    space = task.config_space
    places = [place for place in range(space.range_length) if space.is_index_valid(place)]
    lines = [line(task, space.get(place), 1.0) for place in random.sample(places, 3)]
    told[key] = [comparing.compare_autotvm(each, "llvm -mcpu=core-avx2", 1) for each in lines]
task = anything(grouped(18, 12, 3))
configs = [task.config_space.get(place) for place in range(task.config_space.range_length)]
bad = next(config for config in configs if tiles(config) == [3, 3])
told["bad"] = comparing.compare_autotvm(line(task, bad, 1.0), "llvm -mcpu=core-avx2", 1)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return inside_all(GROUPED + SEARCHES, CHOSEN, COMPUTED, folder=tmp_path_factory.mktemp("sound"))


def test_every_search_finds_sound_tiles_only(sound: list[Any]) -> None:
    told = sound[0]
    # Tiles of the 4 channels and the 6 outputs of a group: 3 × 4 of the 6 × 6, with 3 × 2 choices of the others.
    assert (told["all"], told["sound"]) == (216, 72)
    for search in ("xgb", "ga", "random", "gridsearch"):
        assert len(told[search]) == 72
        assert {inner for inner, _ in told[search]} == {1, 2, 4}
        assert {outer for _, outer in told[search]} == {1, 2, 3, 6}
        assert told[f"{search}-resumed"] == 67


def test_a_fast_record_that_cannot_be_right_is_not_chosen(sound: list[Any]) -> None:
    told = sound[1]
    assert told == [[[2, 6]], []]


def test_sound_schedules_compute_what_the_default_does(sound: list[Any]) -> None:
    told = sound[2]
    bad = told.pop("bad")
    assert bad["wrong"]
    assert bad["max_rel"] > 0.1
    assert len(told) == 7
    for key, compared in told.items():
        assert [each["wrong"] for each in compared] == [False] * 3, key
