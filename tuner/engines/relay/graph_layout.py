"""Layout search: one schedule for each convolution of a network, minimizing total time including layout transforms.

A schedule of a blocked template (``NCHWc``) expects its input in channel blocks of one size and writes its output in
blocks of another; between two that disagree the whole tensor is rearranged. Follows Y. Liu et al., Optimizing CNN Model
Inference on CPUs, USENIX ATC 2019, section 3.3, and TVM's ``autotvm.graph_tuner``, with two differences: operators in
between (concatenations, sums of branches) propagate layouts as TVM's ``AlterOpLayout`` does, and convolutions of one
workload are one choice, since a build has one schedule for each workload.

``LayoutProblem`` chooses one state per node of a graph so that the sum of node and edge costs is minimal: the
partitioned boolean quadratic problem, solved by reductions. Nodes with one neighbour (RI) and with two (RII) are
eliminated without loss, which is dynamic programming and solves trees and series-parallel graphs exactly. If only nodes
with more neighbours are left, the one with most is fixed (RN): each of its states is tried while that is cheap, after
that the most promising one is used. B. Scholz, E. Eckstein: Register Allocation for Irregular Architectures, LCTES
2002; for layouts of convolutions: Y. Liu et al., as above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

PLAIN = 0
"""Block of a tensor whose channels are not blocked (``NCHW``, and tensors without channels)."""
_FORBIDDEN = float("inf")
_SWEEPS = 4

Transform = Callable[[int, int, int], float]
"""``transform(elements, block, other)``: seconds to rearrange a tensor between block sizes; 0 if they are equal."""


class OperatorKind(StrEnum):
    SOURCE = "source"  # an input of the network: not blocked
    CHOSEN = "chosen"  # a convolution: its state determines both layouts
    FOLLOWS = "follows"  # keeps the first input's layout; the other inputs are converted to it
    JOINS = "joins"  # a concatenation: the inputs' layout if they agree, else not blocked
    OPAQUE = "opaque"  # reads and writes unblocked tensors


@dataclass(frozen=True, kw_only=True)
class LayoutOperator:
    kind: OperatorKind
    elements: int
    """Number of output elements."""
    inputs: tuple[int, ...] = ()
    """Positions of the inputs in the network, all before its own; constants are left out."""
    group: Hashable = None
    """Group of a ``CHOSEN`` operator; all convolutions of a group share one state."""
    divisor: int = 0
    """Size that blocks must divide to pass through a ``FOLLOWS`` operator, such as a slice of channels; 0 for any."""
    strict: bool = False
    """Whether blocks that do not divide ``divisor`` are forbidden, since the build would fail, or converted."""


@dataclass(frozen=True, kw_only=True)
class LayoutNetwork:
    operators: tuple[LayoutOperator, ...]
    """Topologically sorted."""
    outputs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TensorState:
    """One way to compute a convolution, in any implementation; only the layouts matter to its neighbours."""

    takes: int
    """Channel block of the input, or ``PLAIN``."""
    gives: int
    seconds: float
    """Seconds per run of one convolution."""
    name: Hashable = None
    """Caller's identifier of the schedule."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    states: dict[Hashable, TensorState]
    seconds: float
    """Seconds of the convolutions and the transforms between them."""
    exact: bool
    """Whether the solver used no heuristic. It does not model that a tensor wanted in one layout by several operators
    is rearranged only once; a final descent does."""


def assign(
    network: LayoutNetwork, states: Mapping[Hashable, Sequence[TensorState]], transform: Transform
) -> Assignment:
    """Return the best state of each group; each group of the network needs at least one."""
    used = {operator.group: list(states[operator.group]) for operator in network.operators if operator.kind == "chosen"}
    problem = _Formulation(network, used, transform).problem
    solution = problem.solve()
    chosen = {group: found[solution.states[group]] for group, found in used.items()}
    start = {group: min(found, key=lambda state: state.seconds) for group, found in used.items()}
    best = min(
        (_descend(network, used, each, transform) for each in (chosen, start)),
        key=lambda each: seconds(network, each, transform),
    )
    return Assignment(states=best, seconds=seconds(network, best, transform), exact=solution.exact)


def seconds(network: LayoutNetwork, chosen: Mapping[Hashable, TensorState], transform: Transform) -> float:
    """Return the seconds of all convolutions and all transforms that ``AlterOpLayout`` would insert."""
    total = 0.0
    layouts: list[int] = []
    moved: set[tuple[int, int]] = set()

    def bring(position: int, block: int) -> float:
        if layouts[position] == block or (position, block) in moved:
            return 0.0
        moved.add((position, block))
        return transform(network.operators[position].elements, layouts[position], block)

    for operator in network.operators:
        wanted = given = PLAIN
        if operator.kind == OperatorKind.CHOSEN:
            state = chosen[operator.group]
            wanted, given = state.takes, state.gives
            total += state.seconds
        elif operator.kind == OperatorKind.FOLLOWS:
            first = layouts[operator.inputs[0]]
            wanted = given = _through(first, operator.divisor)
            total += _FORBIDDEN if operator.strict and wanted != first else 0.0
        elif operator.kind == OperatorKind.JOINS:
            blocks = {layouts[position] for position in operator.inputs}
            wanted = given = blocks.pop() if len(blocks) == 1 else PLAIN
        total += sum(bring(position, wanted) for position in operator.inputs)
        layouts.append(given)
    return total + sum(bring(position, PLAIN) for position in network.outputs)


def _through(block: int, divisor: int) -> int:
    return PLAIN if block and divisor % block else block


def _descend(
    network: LayoutNetwork,
    states: Mapping[Hashable, Sequence[TensorState]],
    start: dict[Hashable, TensorState],
    transform: Transform,
) -> dict[Hashable, TensorState]:
    """Change one group at a time, using the network's exact cost, until nothing improves."""
    best, least = dict(start), seconds(network, start, transform)
    for _ in range(_SWEEPS):
        before = least
        for group, found in states.items():
            for state in found:
                changed = {**best, group: state}
                cost = seconds(network, changed, transform)
                if cost < least:
                    best, least = changed, cost
        if least == before:
            break
    return best


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Block of a tensor: constant, or depending on the state of a problem node."""

    node: Hashable
    blocks: tuple[int, ...]


_UNBLOCKED = _Layout(node=None, blocks=(PLAIN,))


class _Formulation:
    """A network as a ``LayoutProblem``: one node for each group of convolutions and for each concatenation."""

    def __init__(
        self, network: LayoutNetwork, states: Mapping[Hashable, Sequence[TensorState]], transform: Transform
    ) -> None:
        self.problem = LayoutProblem()
        self._transform = transform
        self._states = states
        self._operators = network.operators
        self._layouts: list[_Layout] = []
        for group, found in states.items():
            self.problem.add_node(group, [0.0] * len(found))
        for position in range(len(network.operators)):
            self._layouts.append(self._add(position))
        for position in network.outputs:
            self._bring(position, _UNBLOCKED)

    def _add(self, position: int) -> _Layout:
        """Add an operator and return the layout of its output."""
        operator = self._operators[position]
        if operator.kind == OperatorKind.JOINS:
            return self._join(position)
        wanted = given = _UNBLOCKED
        if operator.kind == OperatorKind.CHOSEN:
            found = self._states[operator.group]
            costs = self.problem.costs[operator.group]
            for index, state in enumerate(found):
                costs[index] += state.seconds
            wanted = _Layout(node=operator.group, blocks=tuple(state.takes for state in found))
            given = _Layout(node=operator.group, blocks=tuple(state.gives for state in found))
        elif operator.kind == OperatorKind.FOLLOWS:
            first = self._layouts[operator.inputs[0]]
            blocks = tuple(_through(block, operator.divisor) for block in first.blocks)
            wanted = given = _Layout(node=first.node, blocks=blocks)
            if operator.strict and first.node is not None:
                self._forbid(first, blocks)
        for source in operator.inputs:
            self._bring(source, wanted)
        return given

    def _forbid(self, layout: _Layout, allowed: tuple[int, ...]) -> None:
        costs = self.problem.costs[layout.node]
        for index, pair in enumerate(zip(layout.blocks, allowed, strict=True)):
            costs[index] = costs[index] if len(set(pair)) == 1 else _FORBIDDEN

    def _join(self, position: int) -> _Layout:
        inputs = self._operators[position].inputs
        shared = set.intersection(*(set(self._layouts[source].blocks) for source in inputs))
        blocks = (PLAIN, *sorted(shared - {PLAIN}))
        joined = _Layout(node=("join", position), blocks=blocks)
        self.problem.add_node(joined.node, [0.0] * len(blocks))
        for source in inputs:
            # Blocked only if every input already has these blocks.
            self._bring(source, joined, into_blocks=False)
        return joined

    def _bring(self, source: int, wanted: _Layout, *, into_blocks: bool = True) -> None:
        layout = self._layouts[source]
        elements = self._operators[source].elements

        def cost(block: int, other: int) -> float:
            if block != other and other != PLAIN and not into_blocks:
                return _FORBIDDEN
            return 0.0 if block == other else self._transform(elements, block, other)

        matrix = [[cost(block, other) for other in wanted.blocks] for block in layout.blocks]
        if layout.node is not None and wanted.node is not None:
            self.problem.add_edge(layout.node, wanted.node, matrix)
            return
        node = layout.node if wanted.node is None else wanted.node
        if node is not None:
            own = self.problem.costs[node]
            flat = [row[0] for row in matrix] if wanted.node is None else matrix[0]
            self.problem.costs[node] = [a + b for a, b in zip(own, flat, strict=True)]


Node = Hashable
Vector = list[float]
Matrix = list[Vector]
"""Rows are states of one node, columns of the other."""

BRANCHES = 64
"""Number of combined states of nodes with many neighbours to try; beyond it the choice is heuristic."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    states: dict[Node, int]
    cost: float
    exact: bool
    """Whether the solution is proven optimal."""


@dataclass(kw_only=True)
class LayoutProblem:
    """Node and edge costs; infinite costs forbid a choice, and at least one must remain."""

    costs: dict[Node, Vector] = field(default_factory=dict)
    edges: dict[Node, dict[Node, Matrix]] = field(default_factory=dict)
    """Each edge is stored at both ends, transposed."""

    def add_node(self, node: Node, costs: Sequence[float]) -> None:
        self.costs[node] = list(costs)
        self.edges[node] = {}

    def add_edge(self, first: Node, second: Node, matrix: Sequence[Sequence[float]]) -> None:
        """Add an edge. Costs of parallel edges add up; an edge from a node to itself adds to the node's costs."""
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

    def _copy(self) -> LayoutProblem:
        # Matrices are replaced, never modified; vectors are modified.
        costs = {node: list(vector) for node, vector in self.costs.items()}
        return LayoutProblem(costs=costs, edges={node: dict(near) for node, near in self.edges.items()})

    def _remove(self, node: Node) -> None:
        for other in self.edges.pop(node):
            del self.edges[other][node]
        del self.costs[node]


@dataclass(frozen=True, kw_only=True)
class _Removed:
    """An eliminated node, whose best state follows from those of its former neighbours."""

    node: Node
    costs: Vector
    near: dict[Node, Matrix]

    def best(self, states: Mapping[Node, int]) -> int:
        totals = list(self.costs)
        for other, matrix in self.near.items():
            for state in range(len(totals)):
                totals[state] += matrix[state][states[other]]
        return totals.index(min(totals))


def _solve(problem: LayoutProblem, branches: int) -> tuple[dict[Node, int], bool]:
    """Solve ``problem``, emptying it."""
    removed = _eliminate(problem)
    states: dict[Node, int] = {}
    exact = True
    if problem.costs:
        states, exact = _fix_one(problem, branches)
    for each in reversed(removed):
        states[each.node] = each.best(states)
    return states, exact


def _eliminate(problem: LayoutProblem) -> list[_Removed]:
    """Apply R0, RI and RII while any node has at most two neighbours."""
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


def _fold_into(problem: LayoutProblem, other: Node, leaf: _Removed) -> None:
    (matrix,) = leaf.near.values()
    vector = problem.costs[other]
    for state in range(len(vector)):
        vector[state] += min(own + row[state] for own, row in zip(leaf.costs, matrix, strict=True))


def _joined(costs: Vector, left: Matrix, right: Matrix) -> Matrix:
    """Return the lowest cost of a node between two others for each pair of their states."""
    ways = list(zip(costs, left, right, strict=True))
    joined = []
    for first in range(len(left[0])):
        rows = [(own + row[first], other) for own, row, other in ways]
        joined.append([min(cost + other[second] for cost, other in rows) for second in range(len(right[0]))])
    return joined


def _fix_one(problem: LayoutProblem, branches: int) -> tuple[dict[Node, int], bool]:
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


def _promising(problem: LayoutProblem, node: Node) -> int:
    """Return the state with the lowest cost if each neighbour only had this one."""
    totals = list(problem.costs[node])
    for other, matrix in problem.edges[node].items():
        for state, row in enumerate(matrix):
            totals[state] += min(a + b for a, b in zip(row, problem.costs[other], strict=True))
    return totals.index(min(totals))
