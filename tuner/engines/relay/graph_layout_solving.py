"""Choose one state for each node of a graph so that the costs of nodes and edges add up to least.

The partitioned boolean quadratic problem, solved by reductions: nodes with one neighbour (RI) and with two (RII) are
eliminated without loss, which is dynamic programming and solves trees and series-parallel graphs exactly. Where only
nodes with more neighbours are left, the one with most is fixed (RN): each of its states is tried while that is cheap,
then the one that looks best is taken. B. Scholz, E. Eckstein: Register Allocation for Irregular Architectures, LCTES
2002; for layouts of convolutions: Y. Liu et al., Optimizing CNN Model Inference on CPUs, USENIX ATC 2019.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

Node = Hashable
Vector = list[float]
Matrix = list[Vector]
"""Rows are states of one node, columns of the other."""

BRANCHES = 64
"""States that nodes with many neighbours may try in all; beyond that the choice is a heuristic."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    states: dict[Node, int]
    cost: float
    exact: bool
    """Whether nothing costs less."""


@dataclass(kw_only=True)
class Problem:
    """Infinite costs forbid; at least one choice must be left."""

    costs: dict[Node, Vector] = field(default_factory=dict)
    edges: dict[Node, dict[Node, Matrix]] = field(default_factory=dict)
    """Each edge from both its ends, transposed."""

    def add_node(self, node: Node, costs: Sequence[float]) -> None:
        self.costs[node] = list(costs)
        self.edges[node] = {}

    def add_edge(self, first: Node, second: Node, matrix: Sequence[Sequence[float]]) -> None:
        """Costs add up where an edge is there already; a node's with itself are its own costs."""
        if first == second:
            own = self.costs[first]
            for state in range(len(own)):
                own[state] += matrix[state][state]
            return
        known = self.edges[first].get(second)
        rows = [list(row) for row in matrix]
        if known:
            rows = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(known, rows, strict=True)]
        self.edges[first][second] = rows
        self.edges[second][first] = [list(column) for column in zip(*rows, strict=True)]

    def cost(self, states: Mapping[Node, int]) -> float:
        total = sum(vector[states[node]] for node, vector in self.costs.items())
        twice = sum(
            matrix[states[node]][states[other]] for node, near in self.edges.items() for other, matrix in near.items()
        )
        return total + twice / 2

    def solve(self, branches: int = BRANCHES) -> Solution:
        states, exact = _solve(self._copy(), branches)
        return Solution(states=states, cost=self.cost(states), exact=exact)

    def _copy(self) -> Problem:
        # Matrices are replaced, never changed; vectors are.
        costs = {node: list(vector) for node, vector in self.costs.items()}
        return Problem(costs=costs, edges={node: dict(near) for node, near in self.edges.items()})

    def _remove(self, node: Node) -> None:
        for other in self.edges.pop(node):
            del self.edges[other][node]
        del self.costs[node]


@dataclass(frozen=True, kw_only=True)
class _Removed:
    """A node whose best state follows from those of its former neighbours."""

    node: Node
    costs: Vector
    near: dict[Node, Matrix]

    def best(self, states: Mapping[Node, int]) -> int:
        totals = list(self.costs)
        for other, matrix in self.near.items():
            for state in range(len(totals)):
                totals[state] += matrix[state][states[other]]
        return totals.index(min(totals))


def _solve(problem: Problem, branches: int) -> tuple[dict[Node, int], bool]:
    """Uses the problem up."""
    removed = _eliminate(problem)
    states: dict[Node, int] = {}
    exact = True
    if problem.costs:
        states, exact = _fix_one(problem, branches)
    for each in reversed(removed):
        states[each.node] = each.best(states)
    return states, exact


def _eliminate(problem: Problem) -> list[_Removed]:
    """R0, RI and RII, as long as there is a node with two neighbours or fewer."""
    removed = []
    open_nodes = list(problem.costs)
    while open_nodes:
        node = open_nodes.pop()
        if node not in problem.costs or len(problem.edges[node]) > 2:
            continue
        each = _Removed(node=node, costs=problem.costs[node], near=dict(problem.edges[node]))
        problem._remove(node)
        removed.append(each)
        near = list(each.near)
        if len(near) == 1:
            _fold_into(problem, near[0], each)
        if len(near) == 2:
            problem.add_edge(near[0], near[1], _joined(each.costs, *each.near.values()))
        open_nodes += near
    return removed


def _fold_into(problem: Problem, other: Node, leaf: _Removed) -> None:
    (matrix,) = leaf.near.values()
    vector = problem.costs[other]
    for state in range(len(vector)):
        vector[state] += min(own + row[state] for own, row in zip(leaf.costs, matrix, strict=True))


def _joined(costs: Vector, left: Matrix, right: Matrix) -> Matrix:
    """What a node between two others costs at best for each pair of their states."""
    ways = list(zip(costs, left, right, strict=True))
    joined = []
    for first in range(len(left[0])):
        rows = [(own + row[first], other) for own, row, other in ways]
        joined.append([min(cost + other[second] for cost, other in rows) for second in range(len(right[0]))])
    return joined


def _fix_one(problem: Problem, branches: int) -> tuple[dict[Node, int], bool]:
    node = max(problem.costs, key=lambda each: len(problem.edges[each]))
    count = len(problem.costs[node])
    tried = count <= branches
    best: dict[Node, int] = {}
    least = math.inf
    exact = tried
    for state in range(count) if tried else [_promising(problem, node)]:
        left = problem._copy()
        for other, matrix in problem.edges[node].items():
            left.costs[other] = [a + b for a, b in zip(left.costs[other], matrix[state], strict=True)]
        left._remove(node)
        states, sub_exact = _solve(left, branches // count if tried else branches)
        states[node] = state
        cost = problem.cost(states)
        exact = exact and sub_exact
        if not best or cost < least:
            best, least = states, cost
    return best, exact


def _promising(problem: Problem, node: Node) -> int:
    """The state that would cost least if each neighbour only had this one."""
    totals = list(problem.costs[node])
    for other, matrix in problem.edges[node].items():
        for state, row in enumerate(matrix):
            totals[state] += min(a + b for a, b in zip(row, problem.costs[other], strict=True))
    return totals.index(min(totals))
