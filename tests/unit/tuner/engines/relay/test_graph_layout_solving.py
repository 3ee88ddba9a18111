"""The solver against brute force, on random graphs."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.engines.relay.graph_layout import LayoutProblem


def brute_force(problem: LayoutProblem) -> float:
    nodes = list(problem.costs)
    choices = itertools.product(*(range(len(problem.costs[node])) for node in nodes))
    return min(problem.cost(dict(zip(nodes, choice, strict=True))) for choice in choices)


def random_problem(draw: Any, edges: list[tuple[int, int]], count: int, *, forbid: bool = False) -> LayoutProblem:
    cost = st.integers(min_value=0, max_value=30)
    problem = LayoutProblem()
    sizes = [draw(st.integers(min_value=1, max_value=4)) for _ in range(count)]
    for node, size in enumerate(sizes):
        problem.add_node(node, [draw(cost) for _ in range(size)])
    for first, second in edges:
        matrix: list[list[float]] = [[draw(cost) for _ in range(sizes[second])] for _ in range(sizes[first])]
        if forbid and sizes[first] > 1:
            # Never the first state's row: something is always allowed.
            matrix[1][draw(st.integers(min_value=0, max_value=sizes[second] - 1))] = math.inf
        problem.add_edge(first, second, matrix)
    return problem


@st.composite
def trees(draw: Any) -> LayoutProblem:
    count = draw(st.integers(min_value=1, max_value=6))
    edges = [(draw(st.integers(min_value=0, max_value=node - 1)), node) for node in range(1, count)]
    return random_problem(draw, edges, count, forbid=True)


@st.composite
def graphs(draw: Any) -> LayoutProblem:
    count = draw(st.integers(min_value=2, max_value=6))
    pairs = [(first, second) for first in range(count) for second in range(first, count)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=12))
    return random_problem(draw, edges, count)


@settings(max_examples=60, deadline=None)
@given(trees())
def test_trees_are_solved_exactly(problem: LayoutProblem) -> None:
    solution = problem.solve(branches=0)
    assert solution.exact
    assert solution.cost == brute_force(problem) == problem.cost(solution.states)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_any_graph_is_solved_exactly_while_trying_is_cheap(problem: LayoutProblem) -> None:
    solution = problem.solve(branches=10_000)
    assert solution.exact
    assert solution.cost == brute_force(problem)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_the_heuristic_never_claims_what_is_not_so(problem: LayoutProblem) -> None:
    solution = problem.solve(branches=0)
    least = brute_force(problem)
    assert solution.cost == problem.cost(solution.states) >= least
    assert not solution.exact or solution.cost == least


def test_a_diamond_needs_no_guess() -> None:
    problem = LayoutProblem()
    for node in "abcd":
        problem.add_node(node, [1, 0])
    for pair in ("ab", "ac", "bd", "cd"):
        problem.add_edge(*pair, [[0, 5], [5, 0]])
    solution = problem.solve(branches=0)
    assert (solution.states, solution.cost, solution.exact) == (dict.fromkeys("abcd", 1), 0, True)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_heuristic_comes_close_on_graphs_without_two_neighbours(seed: int) -> None:
    """Five nodes, each beside each, three states: layouts that agree cost nothing."""
    generator = random.Random(seed)  # noqa: S311 - costs, not secrets
    problem = LayoutProblem()
    for node in range(5):
        problem.add_node(node, [generator.uniform(0, 4) for _ in range(3)])
    for first, second in itertools.combinations(range(5), 2):
        problem.add_edge(first, second, [[0.0 if a == b else 1.0 for a in range(3)] for b in range(3)])
    assert problem.solve(branches=0).cost <= 1.3 * brute_force(problem)


def test_costs_of_edges_add_up_and_a_loop_is_the_nodes_own() -> None:
    problem = LayoutProblem()
    problem.add_node("a", [0, 0])
    problem.add_node("b", [0, 0])
    problem.add_edge("a", "a", [[3, 9], [9, 1]])
    problem.add_edge("a", "b", [[0, 1], [1, 0]])
    problem.add_edge("b", "a", [[0, 4], [1, 0]])
    assert problem.costs["a"] == [3, 1]
    assert problem.edges["a"]["b"] == [[0, 2], [5, 0]]
    assert problem.solve().states == {"a": 1, "b": 1}
