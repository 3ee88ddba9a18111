"""Plans of graph executor files: a graph's nodes as a straight list of kernel calls."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.engines.protocol.messages import Json
from tuner.engines.runtime.library.plan import Call, Convention, Kind, NotStandalone, Plan, Tensor, UnknownSizes

_RESHAPE = "__nop"
"""Function name of nodes whose output has their input's data."""
_PREFIX = "tvmgen_default_"
_PARAMETER, _OPERATION = "null", "tvm_op"
_GRAPH_BOOL = "uint1"
"""How graphs write the dtype bool: by its bits, though an element takes a byte."""


def read(graph: Json, params: Mapping[str, bytes | memoryview], outputs: tuple[str, ...]) -> Plan:
    """Return the plan of a graph, in the JSON of TVM's graph executor.

    ``params`` are the bytes of its weights, by name; ``outputs`` are names for its outputs. Raises
    NotStandalone.
    """
    return _Reader(graph, params).plan(outputs)


class _Reader:
    def __init__(self, graph: Json, params: Mapping[str, bytes | memoryview]) -> None:
        self._graph = graph
        self._params = params
        attributes = graph["attrs"]
        self._shapes: list[list[int]] = attributes["shape"][1]
        self._dtypes: list[str] = attributes["dltype"][1]
        # One row for each output of each node.
        self._rows: list[int] = graph["node_row_ptr"]
        self._tensors: dict[int, Tensor] = {}
        self._calls: list[Call] = []
        self._inputs: list[tuple[str, int]] = []
        self._constants: list[bytes | memoryview] = []

    def plan(self, outputs: tuple[str, ...]) -> Plan:
        for number, node in enumerate(self._graph["nodes"]):
            if node["op"] == _PARAMETER:
                self._parameter(number, node)
            elif node["op"] == _OPERATION:
                self._operation(number, node)
            else:
                raise NotStandalone(f"graph nodes of kind {node['op']!r}")
        return Plan(
            convention=Convention.PACKED,
            tensors=[self._tensors[row] for row in range(self._rows[-1])],
            calls=self._calls,
            inputs=[row for _, row in self._inputs],
            outputs=[self._row(head) for head in self._graph["heads"]],
            input_names=[name for name, _ in self._inputs],
            output_names=outputs,
            constants=self._constants,
        )

    def _parameter(self, number: int, node: Json) -> None:
        row, name = self._rows[number], node["name"]
        if name in self._params:
            self._set(row, Kind.CONSTANT, len(self._constants))
            self._constants.append(self._params[name])
        else:
            self._set(row, Kind.INPUT, len(self._inputs))
            self._inputs.append((name, row))

    def _operation(self, number: int, node: Json) -> None:
        symbol = node["attrs"]["func_name"]
        given = [self._row(entry) for entry in node["inputs"]]
        made = list(range(self._rows[number], self._rows[number] + int(node["attrs"]["num_outputs"])))
        if symbol == _RESHAPE:
            source = self._tensors[given[0]]
            self._set(made[0], source.kind, source.index)
            return
        for row in made:
            self._set(row, Kind.SCRATCH, row)
        self._calls.append(Call(symbol=symbol, name=symbol.removeprefix(_PREFIX), arguments=(*given, *made)))

    def _row(self, entry: list[int]) -> int:
        node, output, *_ = entry
        return self._rows[node] + output

    def _set(self, row: int, kind: Kind, index: int) -> None:
        shape = tuple(int(size) for size in self._shapes[row])
        if min(shape, default=0) < 0:
            raise UnknownSizes
        dtype = self._dtypes[row]
        self._tensors[row] = Tensor(
            dtype="bool" if dtype == _GRAPH_BOOL else dtype, shape=shape, kind=kind, index=index
        )
