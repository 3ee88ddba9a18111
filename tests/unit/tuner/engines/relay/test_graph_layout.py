"""Choosing layouts for a graph: against brute force on random networks, and by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.engines.relay import graph_layout
from tuner.engines.relay.graph_layout import PLAIN, LayoutNetwork, LayoutOperator, OperatorKind, TensorState

States = Mapping[Any, Sequence[TensorState]]


def transform(elements: int, block: int, other: int) -> float:
    """A launch, and more to merge blocks than to split them."""
    return 0.0 if block == other else 1.0 + elements * (0.01 if block == PLAIN else 0.02 if block > other else 0.04)


def brute_force(network: LayoutNetwork, states: States) -> float:
    groups = list(dict.fromkeys(each.group for each in network.operators if each.kind == OperatorKind.CHOSEN))
    choices = itertools.product(*(states[group] for group in groups))
    return min(graph_layout.seconds(network, dict(zip(groups, choice, strict=True)), transform) for choice in choices)


def convolution(group: str, *inputs: int) -> LayoutOperator:
    return operator(OperatorKind.CHOSEN, *inputs, group=group)


def operator(kind: OperatorKind, *inputs: int, elements: int = 100, **more: Any) -> LayoutOperator:
    return LayoutOperator(kind=kind, elements=elements, inputs=inputs, **more)


SOURCE = operator(OperatorKind.SOURCE)


def state(takes: int, gives: int, seconds: float, name: Any = None) -> TensorState:
    return TensorState(takes=takes, gives=gives, seconds=seconds, name=name)


def chain(length: int) -> LayoutNetwork:
    operators = [SOURCE, *(convolution(f"c{place}", place) for place in range(length))]
    return LayoutNetwork(operators=tuple(operators), outputs=(length,))


@st.composite
def networks(draw: Any) -> tuple[LayoutNetwork, States]:
    operators: list[LayoutOperator] = [SOURCE]
    for _ in range(draw(st.integers(min_value=1, max_value=7))):
        kind = draw(st.sampled_from([*OperatorKind, OperatorKind.CHOSEN]))
        earlier = st.integers(min_value=0, max_value=len(operators) - 1)
        count = (
            0
            if kind == OperatorKind.SOURCE
            else 1
            if kind == OperatorKind.CHOSEN
            else draw(st.integers(min_value=1, max_value=3))
        )
        operators.append(
            LayoutOperator(
                kind=kind,
                elements=draw(st.integers(min_value=1, max_value=200)),
                inputs=tuple(draw(earlier) for _ in range(count)),
                group=f"g{draw(st.integers(min_value=0, max_value=3))}" if kind == OperatorKind.CHOSEN else None,
                divisor=draw(st.sampled_from([0, 0, 1, 8, 24])),
            )
        )
    block = st.sampled_from([PLAIN, 8, 12, 16])
    cost = st.integers(min_value=0, max_value=12)
    states = {
        f"g{group}": [
            state(draw(block), draw(block), draw(cost)) for _ in range(draw(st.integers(min_value=1, max_value=4)))
        ]
        for group in range(4)
    }
    return LayoutNetwork(operators=tuple(operators), outputs=(len(operators) - 1,)), states


@settings(max_examples=60, deadline=None, derandomize=True)
@given(networks())
def test_random_networks_are_solved_as_well_as_brute_force_does(drawn: tuple[LayoutNetwork, States]) -> None:
    network, states = drawn
    found = graph_layout.assign(network, states, transform)
    least = brute_force(network, states)
    assert found.seconds == graph_layout.seconds(network, found.states, transform)
    assert least <= found.seconds <= 1.05 * least + 1e-9


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=1, max_value=5), st.data())
def test_chains_are_solved_exactly(length: int, data: Any) -> None:
    block, cost = st.sampled_from([8, 12, 16]), st.integers(min_value=0, max_value=12)
    drawn = st.lists(st.builds(state, block, block, cost), min_size=1, max_size=4)
    states = {f"c{place}": data.draw(drawn) for place in range(length)}
    found = graph_layout.assign(chain(length), states, transform)
    assert found.exact
    assert abs(found.seconds - brute_force(chain(length), states)) < 1e-9


def test_a_gain_that_transforms_would_eat_is_left() -> None:
    network = chain(3)
    same, other = state(16, 16, 10.0), state(8, 8, 8.0)
    states = {"c0": [same], "c1": [same, other], "c2": [same]}
    assert graph_layout.assign(network, states, transform).states["c1"] == same
    # All three gain: the layout changes for all of them, and the ends pay no more than before.
    everywhere = {group: [same, other] for group in ("c0", "c1", "c2")}
    assert set(graph_layout.assign(network, everywhere, transform).states.values()) == {other}


def test_the_first_branch_of_a_sum_leads() -> None:
    network = LayoutNetwork(
        operators=(
            SOURCE,
            convolution("a", 0),
            convolution("b", 0),
            operator(OperatorKind.FOLLOWS, 1, 2),
            convolution("c", 3),
        ),
        outputs=(4,),
    )
    chosen = {"a": state(3, 16, 1.0), "b": state(3, 8, 1.0), "c": state(16, 16, 1.0)}
    brought = []

    def noted(elements: int, block: int, other: int) -> float:
        brought.append((block, other))
        return 0.0

    graph_layout.seconds(network, chosen, noted)
    # The input of both is rearranged once.
    assert brought == [(PLAIN, 3), (8, 16), (16, PLAIN)]


def test_a_concatenation_is_blocked_only_where_all_agree() -> None:
    def seconds(first: int, second: int) -> float:
        network = LayoutNetwork(
            operators=(
                SOURCE,
                convolution("a", 0),
                convolution("b", 0),
                operator(OperatorKind.JOINS, 1, 2, elements=200),
            ),
            outputs=(),
        )
        chosen = {"a": state(PLAIN, first, 0.0), "b": state(PLAIN, second, 0.0)}
        return graph_layout.seconds(network, chosen, transform)

    assert seconds(16, 16) == 0
    assert seconds(16, 8) == transform(100, 16, PLAIN) + transform(100, 8, PLAIN)


def test_a_slice_of_channels_lets_dividing_blocks_through() -> None:
    def seconds(block: int, **more: Any) -> float:
        cut = operator(OperatorKind.FOLLOWS, 1, elements=50, divisor=24, **more)
        network = LayoutNetwork(operators=(SOURCE, convolution("a", 0), cut), outputs=())
        return graph_layout.seconds(network, {"a": state(PLAIN, block, 0.0)}, transform)

    assert seconds(8) == seconds(12) == 0
    assert seconds(16) == transform(100, 16, PLAIN)
    assert seconds(16, strict=True) == float("inf")


def test_what_would_not_build_is_never_chosen() -> None:
    cut = operator(OperatorKind.FOLLOWS, 1, divisor=24, strict=True)
    network = LayoutNetwork(operators=(SOURCE, convolution("a", 0), cut), outputs=())
    states = {"a": [state(PLAIN, 16, 1.0), state(PLAIN, 8, 50.0)]}
    assert graph_layout.assign(network, states, transform).states["a"].gives == 8


def test_another_implementation_is_only_more_states() -> None:
    network = chain(2)
    direct = [state(16, 16, 10.0, "direct")]
    states = {"c0": [*direct, state(PLAIN, PLAIN, 4.0, "plain")], "c1": direct}
    found = graph_layout.assign(network, states, transform)
    assert [found.states[group].name for group in ("c0", "c1")] == ["plain", "direct"]
    assert found.seconds == 4 + transform(100, PLAIN, 16) + 10 + transform(100, 16, PLAIN)


def test_convolutions_of_one_workload_take_one_schedule() -> None:
    network = LayoutNetwork(
        operators=(SOURCE, convolution("a", 0), convolution("b", 1), convolution("a", 2)),
        outputs=(3,),
    )
    states = {"a": [state(16, 16, 5.0), state(8, 8, 4.0)], "b": [state(16, 16, 1.0)]}
    found = graph_layout.assign(network, states, transform)
    assert found.states["a"].takes == 16
    assert found.seconds == 11 + transform(100, PLAIN, 16) + transform(100, 16, PLAIN)


RECORDED = Path(__file__).parent / "recorded" / "ppocr_cls_layouts.json"


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(RECORDED.read_text())
    operators = [
        LayoutOperator(kind=OperatorKind(kind), elements=elements, inputs=tuple(inputs), group=group, divisor=divisor)
        for kind, elements, inputs, group, divisor in told["operators"]
    ]
    states = {group: [state(*each) for each in found] for group, found in enumerate(told["states"])}
    network = LayoutNetwork(operators=tuple(operators), outputs=tuple(told["outputs"]))
    return {"network": network, "states": states, "costs": told["costs"], "untuned": told["untuned"]}


def microseconds(costs: dict[str, float], elements: int, block: int, other: int) -> float:
    """As ``choosing.Costs``, which only the engine's environment can import."""
    if block == other:
        return 0.0
    if not block or not other:
        rate = costs["pack"] if not block else costs["unpack_16" if block > 8 else "unpack_8"]
    else:
        rate = costs["split" if block % other == 0 else "merge"]
    return 0.5 + elements * rate / 1000


def test_measured_schedules_of_a_network_are_combined_for_good(recorded: dict[str, Any]) -> None:
    network, states = recorded["network"], recorded["states"]

    def moved(elements: int, block: int, other: int) -> float:
        return microseconds(recorded["costs"], elements, block, other)

    def total(chosen: Mapping[Any, TensorState]) -> float:
        return graph_layout.seconds(network, chosen, moved)

    found = graph_layout.assign(network, states, moved)
    alone = {group: min(each, key=lambda one: one.seconds) for group, each in states.items()}
    kept = {
        group: next((one for one in each if [one.takes, one.gives] == recorded["untuned"][group]), each[0])
        for group, each in states.items()
    }
    assert found.exact
    assert found.seconds < 0.99 * total(alone)
    assert found.seconds < 0.8 * total(kept)
    # No convolution, and no two of them, would be better off with another schedule.
    several = [group for group, each in states.items() if len(each) > 1]
    for pair in itertools.combinations(several, 2):
        for changed in itertools.product(*(states[group] for group in pair)):
            assert total({**found.states, **dict(zip(pair, changed, strict=True))}) >= found.seconds - 1e-9
