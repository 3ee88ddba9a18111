"""Checks of an uploaded model before ``onnx.checker``, ONNX Runtime or TVM reads it.

A rejection is ``invalid_model`` with ``details.reason``, one of ``REASONS``, or ``unsupported_operators``.
"""

from __future__ import annotations

import math
import re
import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import onnx
from onnxruntime.capi import onnxruntime_pybind11_state

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import weights
from tuner.engines.runtime.importing import every_node, subgraphs

REASONS = {
    "not_onnx": "not an ONNX file, or truncated",
    "checker": "`onnx.checker` rejects it",
    "ir_version": "an unknown or too new IR version",
    "opset_version": "an unknown or too new operator set, or one domain in two versions",
    "archive": "an archive with links, paths that lead out, or not exactly one `.onnx` file",
    "external_data": "weights in external files that are missing, or too short",
    "too_large": "more than 2 GiB of weights",
    "too_many": "too many nodes, tensors, values or functions, as written or with functions expanded",
    "nested_too_deep": "graphs or functions nested too deeply, or recursive functions",
    "name": "a name that is too long, contains control characters or is not UTF-8",
    "duplicate_name": "two inputs, outputs or weights with the same name",
    "shape": "a negative or overflowing size",
    "dtype": "an element type that ONNX does not define",
    "tensor_size": "a tensor whose data does not match its shape and type",
    "attribute": "a stride, kernel, group or similar attribute below 1 or above 2³¹",
    "endless_loop": "an endless loop, or one with too many iterations",
    "memory": "a value larger than the memory limit for reading a model (`TUNESMITH_INSPECT_MEMORY_MB`)",
}
"""Values of ``details.reason`` of ``invalid_model``; stable."""
_LONGEST_SHOWN = 100


def check(model: onnx.ModelProto) -> None:
    """Raise EngineFailure for models that no engine should read."""
    check_versions(model)
    parts = walk(model)
    for tensor in parts.tensors:
        check_tensor(tensor)
    check_attributes(parts.nodes)
    check_names(model, parts)
    check_loops(model)
    check_operators(model, parts)


def check_inside(model: onnx.ModelProto) -> None:
    """Raise EngineFailure ``invalid_model``: ``external_data`` if a file refers to others, which it did not bring."""
    for tensor in walk(model).tensors:
        if weights.is_outside(tensor) or tensor.external_data:
            raise refuse(
                "external_data",
                "the model has weights in external files; upload one tar archive of the .onnx file and these files",
            )


def refuse(reason: str, message: str) -> EngineFailure:
    assert reason in REASONS, reason  # noqa: S101 - a slip of ours
    return EngineFailure("invalid_model", message, details={"reason": reason})


def shown(name: str | bytes) -> str:
    """Return a name from the model for use in a message: short and on one line."""
    if isinstance(name, bytes):
        return ascii(name[:_LONGEST_SHOWN])
    return ascii(name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…")


_STANDARD = ("", "ai.onnx")
_CONTRIB = "com.microsoft"
_HIGHEST = 1_000
"""Highest version of a custom domain."""


@cache
def _newest(domain: str) -> int:
    """Return the highest version that onnx and ONNX Runtime know of a domain."""
    own = [version for name, version in onnx.helper.OP_SET_ID_VERSION_MAP if name == (domain or "ai.onnx")]
    if not own and domain == _CONTRIB:
        schemas = onnxruntime_pybind11_state.get_all_operator_schema()
        own = [schema.since_version for schema in schemas if schema.domain == domain]
    return max(own, default=_HIGHEST)


def check_versions(model: onnx.ModelProto) -> None:
    """Check IR and operator set versions. Raises EngineFailure ``invalid_model``: ``ir_version``, ``opset_version``."""
    if not 1 <= model.ir_version <= onnx.IR_VERSION:
        raise refuse(
            "ir_version",
            f"the model's IR version is {model.ir_version}; supported are versions up to {onnx.IR_VERSION}",
        )
    seen: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in _STANDARD else entry.domain
        newest = _newest(domain)
        if not 1 <= entry.version <= newest:
            kind = f"operator set {shown(domain)}" if domain else "operator set"
            raise refuse(
                "opset_version", f"the model's {kind} is {entry.version}; supported are versions up to {newest}"
            )
        if seen.setdefault(domain, entry.version) != entry.version:
            raise refuse("opset_version", f"the model imports domain {shown(domain)} in two versions")


_LONGEST = 10_000
"""Maximum characters of a name; exporters write whole module paths of a few hundred."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MOST_SYMBOLS = 64
"""Maximum dimensions of one value, as in NumPy."""


def check_names(model: onnx.ModelProto, parts: Parts) -> None:
    """Check names and types of values.

    Raises EngineFailure ``invalid_model``: ``name``, ``duplicate_name``, ``shape``, ``dtype``.
    """
    for name in _names(model, parts):
        # Protobuf returns bytes for strings that are not UTF-8.
        if isinstance(name, bytes) or len(name) > _LONGEST or _CONTROL.search(name):
            raise refuse("name", f"the name {shown(name)} is too long, contains control characters or is not UTF-8")
    for graph in parts.graphs:
        weights = [tensor.name for tensor in graph.initializer]
        weights += [sparse.values.name for sparse in graph.sparse_initializer]
        for kind, names in (
            ("weights", weights),
            ("inputs", [value.name for value in graph.input]),
            ("outputs", [value.name for value in graph.output]),
        ):
            _check_distinct(kind, names)
        for value in [*graph.input, *graph.output, *graph.value_info]:
            _check_type(value)


def _names(model: onnx.ModelProto, parts: Parts) -> Iterator[str | bytes]:
    for entry in model.opset_import:
        yield entry.domain
    for node in parts.nodes:
        yield from (node.op_type, node.domain, node.name)
        yield from node.input
        yield from node.output
    for tensor in parts.tensors:
        yield tensor.name
    for graph in parts.graphs:
        for value in [*graph.input, *graph.output]:
            yield value.name
            yield from (dimension.dim_param for dimension in value.type.tensor_type.shape.dim)


def _check_distinct(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refuse("duplicate_name", f"two {kind} have the name {shown(name)}")
        seen.add(name)


def _check_type(value: Any) -> None:
    if value.type.WhichOneof("value") != "tensor_type":
        return
    tensor = value.type.tensor_type
    known = onnx.TensorProto.DataType.values()
    if tensor.elem_type not in known:
        raise refuse("dtype", f"{shown(value.name)} has element type {tensor.elem_type}, which ONNX does not define")
    sizes = [dimension.dim_value for dimension in tensor.shape.dim if dimension.HasField("dim_value")]
    if len(tensor.shape.dim) > _MOST_SYMBOLS:
        raise refuse("shape", f"{shown(value.name)} has {len(tensor.shape.dim)} dimensions")
    # Some exporters write -1 or 0 for an unknown dimension.
    if any(size < -1 for size in sizes) or math.prod(size for size in sizes if size > 0) > _LARGEST:
        raise refuse("shape", f"{shown(value.name)} has the shape {sizes[:8]}")


_MOST_SHOWN, _LONGEST_LIST = 10, 1000
_HOW_TO_ADD = (
    "Correct the name, define the operator in the model as a function (onnx.helper.make_function), or replace it; "
    "docs/how-to/custom-operators.md says how engines get faster implementations of such operators."
)


@cache
def _known() -> frozenset[tuple[str, str]]:
    """Return the domain and type of every operator of ONNX Runtime, the reference."""
    return frozenset((schema.domain, schema.name) for schema in onnxruntime_pybind11_state.get_all_operator_schema())


def check_operators(model: onnx.ModelProto, parts: Parts) -> None:
    """Check that ONNX Runtime, or the model itself, defines all operators.

    Raises EngineFailure ``unsupported_operators`` with ``details.operators {name: count}``.
    """
    own = {(function.domain, function.name) for function in model.functions}
    used = Counter(("" if node.domain in _STANDARD else node.domain, node.op_type) for node in parts.nodes)
    unknown = {
        (f"{domain}::{name}" if domain else name)[:_LONGEST_SHOWN]: count
        for (domain, name), count in used.most_common()
        if (domain, name) not in own and (domain, name) not in _known()
    }
    if not unknown:
        return
    listed = dict(list(unknown.items())[:_MOST_SHOWN])
    names = ", ".join(f"{shown(name)} ({count}×)" for name, count in listed.items())
    more = f" and {len(unknown) - len(listed)} more" if len(unknown) > len(listed) else ""
    raise EngineFailure(
        "unsupported_operators",
        f"neither ONNX Runtime nor the model defines {names[:_LONGEST_LIST]}{more}",
        hint=_HOW_TO_ADD,
        details={"operators": listed},
    )


_POSITIVE = frozenset(
    (
        *("kernel_shape", "strides", "dilations", "group", "offset_group"),
        *("blocksize", "num_groups", "num_outputs", "hidden_size"),
        *("pooled_shape", "output_height", "output_width"),
    )
)
"""Attributes of standard operators for which zero and negative values are never valid."""
_MOST = 2**31 - 1
"""Its square still fits in 64 bits."""


def check_attributes(nodes: Iterable[Any]) -> None:
    """Check attribute values. Raises EngineFailure ``invalid_model``: ``attribute``."""
    for node in nodes:
        if node.domain in _STANDARD:
            for attribute in node.attribute:
                # In a function's body it may refer to the caller's attribute and has no value of its own.
                if attribute.name in _POSITIVE and not attribute.ref_attr_name:
                    _check(node, attribute)


def _check(node: Any, attribute: Any) -> None:
    values = [*([attribute.i] if attribute.type == attribute.INT else []), *attribute.ints]
    if all(1 <= value <= _MOST for value in values):
        return
    message = (
        f"{shown(node.op_type)} {shown(node.name)} has {attribute.name} {values[0] if len(values) == 1 else values[:8]}"
    )
    raise refuse("attribute", f"{message}; it must be from 1 to {_MOST}")


_T = onnx.TensorProto
_LARGEST = 2**40
"""Maximum elements of a tensor, far more than a file can contain."""
_BITS = {
    **dict.fromkeys((_T.INT4, _T.UINT4, _T.FLOAT4E2M1), 4),
    **dict.fromkeys((_T.INT8, _T.UINT8, _T.BOOL), 8),
    **dict.fromkeys((_T.FLOAT8E4M3FN, _T.FLOAT8E4M3FNUZ, _T.FLOAT8E5M2, _T.FLOAT8E5M2FNUZ), 8),
    **dict.fromkeys((_T.INT16, _T.UINT16, _T.FLOAT16, _T.BFLOAT16), 16),
    **dict.fromkeys((_T.INT32, _T.UINT32, _T.FLOAT), 32),
    **dict.fromkeys((_T.INT64, _T.UINT64, _T.DOUBLE, _T.COMPLEX64), 64),
    _T.COMPLEX128: 128,
}
_FIELDS = {
    # Field with the values if they are not raw, and its entries per element.
    _T.FLOAT: ("float_data", 1),
    _T.COMPLEX64: ("float_data", 2),
    _T.DOUBLE: ("double_data", 1),
    _T.COMPLEX128: ("double_data", 2),
    _T.INT64: ("int64_data", 1),
    _T.UINT32: ("uint64_data", 1),
    _T.UINT64: ("uint64_data", 1),
    _T.STRING: ("string_data", 1),
}
_ALL_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def check_tensor(tensor: Any) -> None:
    """Check one tensor.

    Raises EngineFailure ``invalid_model``: ``external_data``, ``dtype``, ``shape``, ``tensor_size``.
    """
    if tensor.external_data and not weights.is_outside(tensor):
        raise refuse("external_data", f"tensor {shown(tensor.name)} has its data in the model and in an external file")
    if tensor.HasField("segment"):
        raise refuse("tensor_size", f"tensor {shown(tensor.name)} has segments, which are not supported")
    if tensor.data_type != _T.STRING and tensor.data_type not in _BITS:
        raise refuse(
            "dtype", f"tensor {shown(tensor.name)} has element type {tensor.data_type}, which ONNX does not define"
        )
    _check_size(tensor, _elements(tensor))


def data_bytes(tensor: Any) -> int:
    """Return the bytes of a tensor's data in a file. Raises EngineFailure ``invalid_model``: ``dtype``, ``shape``."""
    if tensor.data_type not in _BITS:
        raise refuse(
            "dtype", f"tensor {shown(tensor.name)} has element type {tensor.data_type}, which files cannot have"
        )
    return -(-_elements(tensor) * _BITS[tensor.data_type] // 8)


def _elements(tensor: Any) -> int:
    if any(size < 0 for size in tensor.dims) or math.prod(tensor.dims) > _LARGEST:
        raise refuse("shape", f"tensor {shown(tensor.name)} has the shape {list(tensor.dims)[:8]}")
    return math.prod(tensor.dims)


def _check_size(tensor: Any, count: int) -> None:
    where, entries = _FIELDS.get(tensor.data_type, ("int32_data", 1))
    given = {name: len(getattr(tensor, name)) for name in _ALL_FIELDS if len(getattr(tensor, name))}
    if weights.is_outside(tensor):
        expected, size = data_bytes(tensor), weights.place(tensor).size
        fits, held = not given and not tensor.raw_data and size == expected, f"{size} bytes"
    elif tensor.HasField("raw_data") and (not given or tensor.raw_data):
        expected = data_bytes(tensor) if tensor.data_type in _BITS else 0
        fits = tensor.data_type != _T.STRING and not given and len(tensor.raw_data) == expected
        held = f"{len(tensor.raw_data)} bytes"
    else:
        # Two 4-bit values share an entry.
        expected = -(-count // 2) if _BITS.get(tensor.data_type) == 4 else count * entries
        fits = given in ({where: expected}, {}) and given.get(where, 0) == expected
        held = ", ".join(f"{size} entries of {name}" for name, size in given.items()) or "no values"
    if not fits:
        kind = _T.DataType.Name(tensor.data_type)
        message = f"tensor {shown(tensor.name)} should have {count} values of {kind} but has {held}"
        raise refuse("tensor_size", message)


_MOST_NODES = 200_000
_MOST_TENSORS = 200_000
_MOST_VALUES = 1_000_000
_MOST_FUNCTIONS = 10_000
_MOST_ENDS = 10_000
"""Maximum inputs, and outputs, of a model."""
_DEEPEST = 16
"""Maximum nesting of graphs, and of function calls; exporters nest two or three levels."""


@dataclass
class Parts:
    """All parts of a model at any depth."""

    graphs: list[Any] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    """Weights and constants, including those that make up a sparse tensor."""


def walk(model: onnx.ModelProto) -> Parts:
    """Collect the parts of a model. Raises EngineFailure ``invalid_model``: ``too_many``, ``nested_too_deep``."""
    if len(model.functions) > _MOST_FUNCTIONS:
        raise refuse("too_many", f"the model defines {len(model.functions)} functions; the limit is {_MOST_FUNCTIONS}")
    if max(len(model.graph.input), len(model.graph.output)) > _MOST_ENDS:
        raise refuse("too_many", f"the model has more than {_MOST_ENDS} inputs or outputs")
    parts = Parts()
    _graph(model.graph, parts)
    for info in model.training_info:
        _graph(info.initialization, parts)
        _graph(info.algorithm, parts)
    for function in model.functions:
        _nodes(function.node, parts, depth=1)
        for attribute in function.attribute_proto:
            _attribute(attribute, parts, depth=1)
    _check_expanded(model)
    return parts


def _graph(graph: Any, parts: Parts, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise refuse("nested_too_deep", f"the model's graphs are nested deeper than {_DEEPEST} levels")
    parts.graphs.append(graph)
    parts.tensors.extend(graph.initializer)
    for sparse in graph.sparse_initializer:
        parts.tensors += [sparse.values, sparse.indices]
    if len(graph.value_info) > _MOST_VALUES:
        raise refuse("too_many", f"the model has more than {_MOST_VALUES} values")
    _nodes(graph.node, parts, depth)


def _nodes(nodes: Any, parts: Parts, depth: int) -> None:
    parts.nodes.extend(nodes)
    if len(parts.nodes) > _MOST_NODES:
        raise refuse("too_many", f"the model has more than {_MOST_NODES} nodes")
    if len(parts.tensors) > _MOST_TENSORS:
        raise refuse("too_many", f"the model has more than {_MOST_TENSORS} tensors")
    for node in nodes:
        for attribute in node.attribute:
            _attribute(attribute, parts, depth)


def _attribute(attribute: Any, parts: Parts, depth: int) -> None:
    if attribute.HasField("t"):
        parts.tensors.append(attribute.t)
    parts.tensors.extend(attribute.tensors)
    for sparse in [
        *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []),
        *attribute.sparse_tensors,
    ]:
        parts.tensors += [sparse.values, sparse.indices]
    for graph in subgraphs([attribute]):
        _graph(graph, parts, depth + 1)


def _check_expanded(model: onnx.ModelProto) -> None:
    """Check the size with functions expanded: ten functions that each call the previous ten times are 10¹⁰ nodes."""
    if not model.functions:
        return
    bodies = {(function.domain, function.name): function.node for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}
    for name in bodies:
        _expanded(name, bodies, sizes, [])
    total = sum(sizes.get((node.domain, node.op_type), 1) for node in every_node(model.graph.node))
    if total > _MOST_NODES:
        raise refuse("too_many", f"with functions expanded, the model has {min(total, 10**12)} nodes")


def _expanded(name: tuple[str, str], bodies: dict[Any, Any], sizes: dict[Any, int], above: list[Any]) -> int:
    if name in sizes:
        return sizes[name]
    if name in above or len(above) > _DEEPEST:
        raise refuse("nested_too_deep", f"the model's function {shown(name[1])} is recursive or nested too deeply")
    called = ((node.domain, node.op_type) for node in every_node(bodies[name]))
    size = sum(_expanded(each, bodies, sizes, [*above, name]) if each in bodies else 1 for each in called)
    sizes[name] = size
    return size


_MOST_ROUNDS = 10_000_000
"""Maximum iterations of a loop, times those of its enclosing loops; ONNX Runtime does about 100,000 per second."""
_SINGLE = 1
"""Elements of a tensor that may be a trip count or a condition."""

Constants = Mapping[str, int]


def check_loops(model: onnx.ModelProto) -> None:
    """Check loops. Raises EngineFailure ``invalid_model``: ``endless_loop``.

    A loop that may end early counts as one iteration: exporters write the largest possible trip count for "while".
    """
    _unroll_graph(model.graph, {}, 1)
    for function in model.functions:
        _unroll_nodes(function.node, {}, 1)


def _unroll_graph(graph: Any, outer: Constants, rounds: int) -> None:
    known = {**outer, **{tensor.name: value for tensor in graph.initializer if (value := _scalar(tensor)) is not None}}
    _unroll_nodes(graph.node, known, rounds)


def _unroll_nodes(nodes: Any, outer: Constants, rounds: int) -> None:
    known = dict(outer)
    for node in nodes:
        if node.op_type == "Constant":
            value = _constant(node)
            if value is not None and node.output:
                known[node.output[0]] = value
        inside = rounds
        if node.op_type == "Loop":
            inside *= _rounds(node, known)
            if inside > _MOST_ROUNDS:
                raise refuse("endless_loop", f"loop {shown(node.name)} runs {min(inside, 10**12)} or more iterations")
        for graph in subgraphs(node.attribute):
            _unroll_graph(graph, known, inside)


def _rounds(node: Any, known: Constants) -> int:
    """Return the iterations that a loop makes whatever its inputs are; 1 if they decide."""
    trips, condition = [*node.input, "", ""][:2]
    body = next((attribute.g for attribute in node.attribute if attribute.name == "body"), None)
    if body is None or (condition and known.get(condition) != 1) or not goes_on(body, known):
        return 1
    if not trips:
        raise refuse("endless_loop", f"loop {shown(node.name)} has no trip count, and its condition is always true")
    return max(1, known.get(trips, 1))


def goes_on(body: Any, known: Constants) -> bool:
    """Return whether the body's condition output is always true, or its unchanged input."""
    if not body.output:
        return False
    name = body.output[0].name
    given = body.input[1].name if len(body.input) > 1 else None
    inside = {**known, **{tensor.name: value for tensor in body.initializer if (value := _scalar(tensor)) is not None}}
    makers = {node.output[0]: node for node in body.node if node.output}
    for _ in range(len(body.node)):
        maker = makers.get(name)
        if maker is None or maker.op_type not in ("Identity", "Cast") or not maker.input:
            break
        name = maker.input[0]
    maker = makers.get(name)
    value = _constant(maker) if maker is not None and maker.op_type == "Constant" else inside.get(name)
    return name == given or value == 1


def _constant(node: Any) -> int | None:
    for attribute in node.attribute:
        if attribute.name == "value":
            return _scalar(attribute.t)
        if attribute.name == "value_int":
            return int(attribute.i)
    return None


def _scalar(tensor: Any) -> int | None:
    """Return the value of a one-element integer or boolean tensor, whose size was already checked."""
    whole = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)
    if tensor.data_type not in whole or len(tensor.dims) > 1 or weights.is_outside(tensor):
        return None
    values = onnx.numpy_helper.to_array(tensor).reshape(-1)
    return int(values[0]) if values.size == _SINGLE else None


_SMALL = 1024
"""Maximum elements of a weight that may specify a shape; the values of larger ones are not needed for inference."""
_WITHOUT_LIMIT = 2**36
_OVERFLOWN = 2**40
_BYTES = 4
"""Bytes per element of types without a known size."""


def check_memory(model: onnx.ModelProto) -> None:
    """Check memory needs. Raises EngineFailure ``invalid_model``: ``memory``.

    Inputs and outputs exist at the same time, so their sizes are added up; of other values the largest counts. Values
    of unknown size count as nothing; the limits of the process apply to them.
    """
    allowed = _allowed()
    ends = [*model.graph.input, *model.graph.output]
    for kind, found in (("inputs and outputs", sum(map(_size, ends))), ("largest value", _largest(model))):
        if found > allowed:
            needed, limit = f"{found / 1e9:,.0f} GB", f"{allowed / 1e9:.1f} GB"
            raise refuse("memory", f"the model's {kind} would need {needed}; the limit is {limit}")


def _allowed() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    data, _ = resource.getrlimit(resource.RLIMIT_DATA)
    set_ones = [limit for limit in (soft, data) if limit != resource.RLIM_INFINITY]
    return min([*set_ones, _WITHOUT_LIMIT])


def _largest(model: onnx.ModelProto) -> int:
    try:
        # Without data propagation, which can be made to run for minutes and use gigabytes itself.
        inferred = onnx.shape_inference.infer_shapes(_skeleton(model))
    except Exception:  # noqa: BLE001 - whatever it cannot infer, ONNX Runtime judges
        return 0
    return max((_size(value) for value in _values(inferred.graph)), default=0)


def _values(graph: Any) -> Iterator[Any]:
    yield from graph.value_info
    for node in every_node(graph.node):
        for inner in subgraphs(node.attribute):
            yield from inner.value_info


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with large weights as inputs and without its declared types of intermediate values."""
    graph = onnx.GraphProto(name=model.graph.name or "graph", node=model.graph.node, output=model.graph.output)
    named = {value.name for value in model.graph.input}
    graph.input.extend(model.graph.input)
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _SMALL:
            graph.initializer.append(tensor)
        elif tensor.name not in named:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return onnx.ModelProto(
        ir_version=max(model.ir_version, 4),
        graph=graph,
        opset_import=model.opset_import,
        functions=model.functions,
    )


def _size(value: Any) -> int:
    """Return the size in bytes; 0 if a dimension is unknown."""
    tensor = value.type.tensor_type
    sizes = [dimension.dim_value if dimension.HasField("dim_value") else 0 for dimension in tensor.shape.dim]
    if not tensor.HasField("shape") or -1 in sizes:
        return 0
    if any(size < 0 for size in sizes):
        # Shape inference computes some sizes in 32 bits, which overflow.
        return _OVERFLOWN
    return math.prod(sizes) * _item(tensor.elem_type)


def _item(elem_type: int) -> int:
    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(elem_type).itemsize) or _BYTES
    except (KeyError, TypeError, ValueError):
        return _BYTES
