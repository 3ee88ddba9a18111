"""Networks prepared for Ansor: layout conversion, the same for builds as for extraction, and task extraction.

Extraction finds the subgraphs that Ansor tunes and how often the network runs each.

Ansor cannot rearrange the weights of TVM 0.19's matrix products, so ``matmul`` replaces them. A layout is written as
alternating sizes and axes, ``16k32j``, so an axis whose name ends in a digit is misread. TVM's products accept more
than two dimensions and have such axes, ``i0`` and ``i1``. Every schedule that tiles one fails, in a search as well as
in ``relay.build`` ("Check failed: (name_it != name_to_arg.end())"); rearranged weights would then fail an assertion
about their dimensions, ``len(tensor_b).shape``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import string
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
from tvm import auto_scheduler, relay, te, topi
from tvm.auto_scheduler import relay_integration

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import corrections, importing, mixed_precision
from tuner.engines.relay.ansor import workloads
from tuner.engines.runtime import faults

_MODULE = "tvm.topi.nn.dense"
"""Module name; the attribute of that name in ``topi.nn`` is the function."""
_original = topi.nn.matmul


def install() -> None:
    """Replace ``topi.nn.matmul`` in this process; idempotent.

    Workloads with a product get other keys than in plain TVM 0.19, so its builds do not find their schedules, on which
    they would fail.
    """
    # ``topi.nn.dense`` looks it up in the module, Relay's strategies in the package.
    sys.modules[_MODULE].matmul = topi.nn.matmul = matmul  # type: ignore[attr-defined]


def matmul(
    tensor_a: Any,
    tensor_b: Any,
    bias: Any = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> Any:
    """Replace ``tvm.topi.nn.matmul``: […, m, k] ∗ [k, n] → […, m, n], optionally transposed, plus ``bias`` [n]."""
    if meta_schedule_original_shape or not (auto_scheduler_rewritten_layout or len(tensor_b.shape) == 2):
        return _original(
            tensor_a, tensor_b, bias, out_dtype, transpose_a, transpose_b, "", meta_schedule_original_shape
        )
    columns = _columns(tensor_b, transpose_b, auto_scheduler_rewritten_layout)
    product = _product(tensor_a, tensor_b, columns, out_dtype or tensor_a.dtype, transpose_a, transpose_b)
    if bias is not None:
        product = topi.add(product, bias.astype(product.dtype))
    if auto_scheduler_rewritten_layout:
        product = auto_scheduler.rewrite_compute_body(product, auto_scheduler_rewritten_layout)
    return product


def _columns(weights: Any, transposed: bool, layout: str) -> Any:
    if not layout:
        return weights.shape[0 if transposed else 1]
    columns, _ = auto_scheduler.get_shape_from_rewritten_layout(layout, ["j", "k"])
    auto_scheduler.remove_index_check(weights)
    return columns


def _product(data: Any, weights: Any, columns: Any, dtype: str, transpose_data: bool, transpose_weights: bool) -> Any:
    rows, depth = reversed(data.shape[-2:]) if transpose_data else data.shape[-2:]
    outer = list(data.shape[:-2])
    k = te.reduce_axis((0, depth), name="k")

    def compute(*axes: Any) -> Any:
        *before, i, j = axes
        left = data[(*before, *_order(i, k, transpose_data))]
        right = weights[_order(k, j, transpose_weights)]
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=k)

    is_dense = transpose_weights and not transpose_data
    return te.compute(
        (*outer, rows, columns),
        compute,
        name=f"T_matmul_{'NT'[transpose_data]}{'NT'[transpose_weights]}",
        tag="dense" if is_dense else "matmul",
        # Relay infers wrong shapes if data is transposed and the weights have another layout.
        attrs=None if transpose_data else {"layout_free_placeholders": [weights]},
        varargs_names=[*string.ascii_lowercase[: len(outer)], "i", "j"],
    )


def _order(first: Any, second: Any, swapped: bool) -> Sequence[Any]:
    return (second, first) if swapped else (first, second)


LAYOUTS = ("NCHW", "NHWC")


@dataclass(frozen=True, kw_only=True)
class AnsorOptions:
    """The ``domain.jobs.TunerOptions`` that apply to Ansor."""

    early_stopping: int | None = None
    n_trial: int | None = None
    layout: str | None = None
    """Layout of convolutions; None for the one chosen by ``networks.suited_layout``."""
    transfer: bool = True
    """Whether to train the cost model on the history of other workloads as well."""

    @classmethod
    def of(cls, options: Json | None) -> AnsorOptions:
        """Read the options of a request. Raises EngineFailure ``invalid_option``."""
        given = {name: value for name, value in (options or {}).items() if name in cls.__dataclass_fields__}
        chosen = cls(**given)
        if chosen.layout is not None:
            faults.require_known("layout", chosen.layout, LAYOUTS)
        return chosen


@dataclass(frozen=True, kw_only=True)
class Network:
    """Identity of a request's network, used as a cache key."""

    path: str
    modified_ns: int
    precision: str
    rewrite: bool
    layout: str
    """``NCHW`` or ``NHWC``."""


def of(params: Json) -> Network:
    """Return the network of a request. Raises as ``mixed_precision.load``."""
    path, precision = params["model"], params.get("precision") or "f32"
    plain = Network(
        path=path,
        modified_ns=Path(path).stat().st_mtime_ns,
        precision=precision,
        rewrite=bool(params.get("rewrite")),
        layout="NCHW",
    )
    return dataclasses.replace(plain, layout=AnsorOptions.of(params.get("options")).layout or _layout(plain))


@lru_cache(maxsize=2)
def _layout(plain: Network) -> str:
    layout = suited_layout(load(plain).module)
    try:
        load(dataclasses.replace(plain, layout=layout))
    except EngineFailure:
        return "NCHW"
    return layout


@lru_cache(maxsize=2)
def load(network: Network) -> importing.Imported:
    """Load the network in its precision and layout, after ``install``.

    Raises EngineFailure ``invalid_option`` if TVM cannot convert its convolutions to that layout.
    """
    install()
    imported = mixed_precision.load(network.path, network.precision, rewrite=network.rewrite)
    return imported if network.layout == "NCHW" else _channels_last(imported)


def suited_layout(module: Any) -> str:
    """Return ``NHWC`` if TVM 0.19 can compile all convolutions of the module in it, else ``NCHW``.

    In NHWC the channels are the innermost axis of data and weights, which vectorizes without the search having to find
    it: for one convolution of ResNet-50, 160 trials found 1.97 ms in NCHW and 0.95 ms in NHWC. Grouped convolutions
    that are not depthwise have no x86 implementation in NHWC.
    """
    grouped = False

    def visit(node: Any) -> None:
        nonlocal grouped
        if isinstance(node, relay.Call) and node.op == relay.op.get("nn.conv2d"):
            groups = int(node.attrs.groups)
            channels = int(node.args[1].checked_type.shape[0])
            grouped = grouped or not (groups == 1 or groups == channels)

    typed = relay.transform.InferType()(module)
    relay.analysis.post_order_visit(typed["main"], visit)
    return "NCHW" if grouped else "NHWC"


def _channels_last(imported: importing.Imported) -> importing.Imported:
    corrections.use_threads(1)
    passes = tvm.transform.Sequential(
        [
            relay.transform.RemoveUnusedFunctions(),
            relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}),
            # Folds the layout transforms of weights, so that later builds need not.
            relay.transform.FoldConstant(),
        ]
    )
    try:
        with tvm.transform.PassContext(opt_level=3):
            return dataclasses.replace(imported, module=passes(imported.module))
    except tvm.TVMError as error:
        # Seen with one-dimensional convolutions next to two-dimensional ones.
        message = f"TVM cannot convert this network's convolutions to NHWC: {faults.text_of(error, longest=300)}"
        raise EngineFailure("invalid_option", message, hint="Use NCHW.") from error


_ENDLESS = 1 << 40
"""Same as ``domain.tuning_tasks.ENDLESS``."""


def extract(params: Json, target: Any) -> list[Json]:
    """Return the tasks, most work first; writes each one's definition to ``params["out_dir"]`` if given."""
    found = _extract(of(params), str(target))
    return tasks(found, target, params.get("out_dir"), lambda name, dag: workloads.describe(_operators(name), dag))


def tasks(
    found: Mapping[str, tuple[int, str]], target: Any, out_dir: str | None, describe: Callable[[str, Any], str]
) -> list[Json]:
    """Return the tasks of registered workloads, most work first; writes their definitions to ``out_dir`` if given.

    ``found`` are, by workload key, how often the network runs it, and what ``describe(text, dag)`` makes its
    description of.
    """
    made: list[Json] = []
    for key, (weight, text) in found.items():
        dag = workloads.search_task(key, target).compute_dag
        made.append(
            {
                "name": workloads.anchor(dag).name,
                "workload_key": key,
                "description": describe(text, dag),
                "weight": weight,
                "flop": workloads.flop(dag),
                "space_size": _ENDLESS,
                "definition": _write_definition(key, out_dir),
            }
        )
    made.sort(key=lambda task: -task["flop"] * task["weight"])
    return [{"position": position, **task} for position, task in enumerate(made)]


def ensure_known(params: Json, target: Any) -> None:
    """Register the workload of a ``tune`` request, from its definition or else from the model.

    Raises EngineFailure ``unknown_workload``.
    """
    key = params["workload_key"]
    if params.get("task"):
        try:
            text = Path(params["task"]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise EngineFailure("unknown_workload", f"cannot read the definition of a workload: {error}") from error
        workloads.register(key, text)
        return
    if workloads.is_known(key):
        return
    register_all(params, target)
    if not workloads.is_known(key):
        raise EngineFailure("unknown_workload", f"the model has no subgraph {key[:300]}")


def register_all(params: Json, target: Any) -> None:
    """Register every workload of the network."""
    _extract(of(params), str(target))


@lru_cache(maxsize=4)
def _extract(network: Network, target: str) -> dict[str, tuple[int, str]]:
    """Return, by workload key, how often the network runs it and the name of one of its functions.

    As a side effect TVM's registry contains all of these workloads.
    """
    imported = load(network)
    corrections.use_threads(1)
    with faults.reported("compile_failed", "TVM cannot extract tasks"), _every_error():
        extracted, weights = auto_scheduler.extract_tasks(imported.module, imported.params, tvm.target.Target(target))
    return {
        str(task.workload_key): (int(weight), str(task.desc).split(",")[0])
        for task, weight in zip(extracted, weights, strict=True)
    }


@contextmanager
def _every_error() -> Iterator[None]:
    """Record all errors during task extraction, which TVM runs in a thread that loses errors other than its own.

    Otherwise the operators before the failing one would be tuned, for a network that cannot be built.
    """
    original = relay_integration.call_all_topi_funcs

    def call(module: Any, params: Any, target: Any, errors: list[str], opt_level: int = 3) -> None:
        try:
            original(module, params, target, errors, opt_level)
        except Exception:  # noqa: BLE001 - whatever a strategy raised
            errors.append(traceback.format_exc())

    relay_integration.call_all_topi_funcs = call
    try:
        yield
    finally:
        relay_integration.call_all_topi_funcs = original


def _operators(function_name: str) -> str:
    """Convert a function name to operators: ``vm_mod_fused_nn_conv2d_add_nn_relu_1`` to ``conv2d+add+relu``."""
    rest = re.sub(r"_\d+$", "", function_name.removeprefix("vm_mod_").removeprefix("fused_"))
    found: list[str] = []
    for name in _operator_names():
        # Longest first, so that no operator matches the beginning of another's name.
        rest = re.sub(rf"(?<![a-z0-9]){re.escape(name.replace('.', '_'))}(?![a-z0-9])", f" {len(found)} ", rest)
        found.append(name)
    names = [found[int(part)] if part.isdigit() else part for part in rest.replace("_", " ").split()]
    return "+".join(name.removeprefix("nn.").removeprefix("contrib_") for name in names)


@lru_cache(maxsize=1)
def _operator_names() -> tuple[str, ...]:
    return tuple(sorted(map(str, tvm.ir.Op.list_op_names()), key=lambda name: (-len(name), name)))


def _write_definition(workload_key: str, folder: str | None) -> str | None:
    """Write a registered workload to the folder, if given; return the name of the file."""
    if folder is None:
        return None
    name = f"ansor-{hashlib.sha256(workload_key.encode()).hexdigest()[:24]}.json"
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / name).write_text(workloads.definition(workload_key), encoding="utf-8")
    return name
