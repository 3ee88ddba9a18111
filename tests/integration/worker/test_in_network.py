"""Records are chosen inside the network: what is fastest by itself may be slow there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.artifacts import Variant
from domain.jobs import Tuner
from domain.profiles import Peak
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO, RELAX, refusing
from tuner.native import autotvm
from tuner.search import racing
from worker.pipeline import baseline, profiling

FASTEST = 7
"""Index of the schedule that is fastest by itself."""
CONV, DENSE = '["conv"]', '["dense"]'


def kernel(name: str, data: list[int], weights: list[list[int]], result: list[int], seconds: float) -> dict[str, Any]:
    return {"name": name, "inputs": [data], "weights": weights, "outputs": [result], "seconds": seconds}


def layers(chosen: Mapping[str, int]) -> list[dict[str, Any]]:
    """In the network the second best convolution is the fastest, and the best dense layer remains that."""
    conv = {FASTEST: 8e-4, FASTEST - 1: 3e-4}.get(chosen.get(CONV, 0), 9e-4)
    dense = 2e-4 if chosen.get(DENSE) == FASTEST else 3e-4
    image, row = [1, 4, 8, 8], [1, 256]
    return [
        kernel("fused_conv2d", [1, 3, 8, 8], [[4, 3, 3, 3]], image, conv),
        kernel("fused_relu", image, [], image, 1e-4),
        kernel("fused_dense", row, [[10, 256]], [1, 10], dense),
    ]


@pytest.fixture(autouse=True)
def _libraries(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # The budget reaches for several builds.
    monkeypatch.setattr(racing, "SAVED_SECONDS", -1e6)
    monkeypatch.setattr(profiling.peaks, "measure", lambda _: Peak(flops=1e12))
    bench.script.hellos = {"relay": HELLO, "onnx": HELLO, "library": HELLO}
    bench.script.standalone = True
    bench.script.space_size = FASTEST + 1
    bench.script.descriptions = {"conv": "conv2d 1×3×8×8 ∗ 4×3×3×3", "dense": "dense 1×256 ∗ 10×256"}
    bench.script.layers = layers
    bench.script.run_seconds = {
        "reference": 3e-3, "untuned": 2e-3, "tuned": 1.1e-3, "tuned-autotvm-in-the-network": 0.6e-3,
    }  # fmt: skip


def built(bench: Bench) -> list[str]:
    return [asked["out_dir"].rpartition("/partial-")[2] for asked in bench.script.asked("compile")]


def test_each_operator_gets_the_record_that_is_fastest_in_the_network(bench: Bench) -> None:
    found = bench.report(bench.run())
    assert found.published is Variant.TUNED
    assert found.portfolio[0].name == "autotvm, in the network"
    assert (found.portfolio[0].verdict, found.portfolio[0].records) == ("published", 2)
    assert "1 operator of autotvm runs faster in the network with another schedule." in found.choice
    made = [name for name in built(bench) if "in-the-network" in name]
    # Beside the best of eight schedules the untuned one, and two that take less than 1.5 times as long by themselves.
    alternatives = [f"tuned-autotvm-in-the-network-alternative-{n}" for n in (1, 2, 3)]
    assert made == [*alternatives, "tuned-autotvm-in-the-network"]


def test_an_operator_that_an_alternative_leaves_alone_wins_nothing_there(bench: Bench) -> None:
    def by_noise(chosen: Mapping[str, int]) -> list[dict[str, Any]]:
        """The dense layer seems faster in the third alternative, in which only the convolution has another record."""
        *others, dense = layers(chosen)
        is_third = CONV in chosen and chosen[CONV] != FASTEST and chosen.get(DENSE) == FASTEST
        return [*others, {**dense, "seconds": 1e-4 if is_third else 2e-4 if DENSE in chosen else 1e-3}]

    bench.script.layers = by_noise
    found = bench.report(bench.run())
    assert "tuned-autotvm-in-the-network-alternative-3" in built(bench)
    assert "1 operator of autotvm runs faster in the network with another schedule." in found.choice


def untuned_wins(chosen: Mapping[str, int]) -> list[dict[str, Any]]:
    """In the network the convolution is fastest without a record."""
    conv, *others = layers(chosen)
    return [{**conv, "seconds": 6e-4 if CONV in chosen else 2e-4}, *others]


@pytest.mark.parametrize("tuner", [Tuner.AUTOTVM, Tuner.METASCHEDULE])
def test_an_operator_does_without_a_record_if_it_is_fastest_so(bench: Bench, tuner: Tuner) -> None:
    bench.script.hellos["relax"] = RELAX
    bench.script.descriptions = {"conv": "conv2d 1×3×8×8 ∗ 4×3×3×3 → 1×4×8×8", "dense": "dense 1×256 ∗ 10×256 → 1×10"}
    bench.script.layers = lambda chosen: untuned_wins({key.replace("ms:", ""): chosen[key] for key in chosen})
    bench.script.run_seconds = {**bench.script.run_seconds, f"tuned-{tuner}-in-the-network": 0.6e-3}
    found = bench.report(bench.run(tuner=tuner))
    assert (found.portfolio[0].name, found.portfolio[0].records) == (f"{tuner}, in the network", 1)
    assert f"1 operator of {tuner} runs faster in the network with another schedule." in found.choice


def test_a_blocked_operator_keeps_its_record_if_the_untuned_layout_is_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_blocks(chosen: Mapping[str, int]) -> list[dict[str, Any]]:
        conv, *others = untuned_wins(chosen)
        return [conv if CONV in chosen else {**conv, "outputs": [[1, 1, 8, 8, 4]]}, *others]

    monkeypatch.setattr(autotvm, "blocks", lambda _: (4, 4))
    bench.script.layers = of_blocks
    used: list[set[str]] = []

    def look(method: str, params: dict[str, Any]) -> None:
        if method == "compile" and params["records"]:
            used.append({json.loads(line)["key"] for line in Path(params["records"]).read_text().splitlines()})

    bench.script.refuse = look
    bench.run()
    assert {DENSE, CONV} in used
    assert {DENSE} not in used
    assert {CONV} in used


def test_a_slow_untuned_schedule_is_not_tried(bench: Bench) -> None:
    bench.script.layers = lambda chosen: [
        {**layer, "seconds": layer["seconds"] * (1 if chosen else 2)} for layer in layers(chosen)
    ]
    bench.run()
    assert "tuned-autotvm-in-the-network-alternative-3" not in built(bench)


def test_a_small_budget_allows_one_tuned_build(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "SAVED_SECONDS", 100.0)
    assert bench.report(bench.run(seconds=100)).portfolio[0].name == "autotvm"
    assert not any("in-the-network" in name for name in built(bench))


def test_without_times_of_untuned_builds_nothing_is_compared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the total limit was reached while they were timed."""
    monkeypatch.setattr(baseline, "_time", lambda *_: {})
    assert bench.report(bench.succeed()).portfolio[0].name == "autotvm"
    assert not any("in-the-network" in name for name in built(bench))


def test_the_choice_can_be_left_out(bench: Bench) -> None:
    bench.options = {"search_without": "in-network"}
    assert bench.report(bench.run()).portfolio[0].name == "autotvm"
    assert not any("in-the-network" in name for name in built(bench))


def test_without_a_gain_nothing_is_built_again(bench: Bench) -> None:
    bench.script.layers = lambda chosen: [{**layer, "seconds": 1e-4} for layer in layers(chosen)]
    found = bench.report(bench.run())
    assert "autotvm, in the network" not in [each.name for each in found.portfolio]
    assert "tuned-autotvm-in-the-network" not in built(bench)


def test_builds_of_another_form_are_not_compared(bench: Bench) -> None:
    def transposed(chosen: Mapping[str, int]) -> list[dict[str, Any]]:
        found = layers(chosen)
        return found if chosen.get(CONV) == FASTEST else [found[0], {**found[1], "name": "transpose"}, *found]

    bench.script.layers = transposed
    bench.run()
    assert "tuned-autotvm-in-the-network" not in built(bench)


def test_a_failure_costs_the_comparison_alone(bench: Bench) -> None:
    error = errors.EngineRequestFailed("compile_failed", "no build")
    bench.script.refuse = refusing("compile", error, out_dir="alternative-2")
    job = bench.succeed()
    assert any(note.startswith("records were not compared in the network") for note in bench.notes(job))
    assert bench.report(job).portfolio[0].name == "autotvm"


def test_a_wrong_build_is_not_published(bench: Bench) -> None:
    bench.script.poisoned = frozenset({(CONV, FASTEST - 1)})
    found = bench.report(bench.run())
    assert found.portfolio[0].name == "autotvm"
