"""Lowering of Relax operators to the tensor functions that become tasks and that schedules apply to.

Constants are folded with numpy instead of functions compiled for a single run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relax import importing, targets
from tuner.engines.relax.graph import (
    attention,
    calls,
    chains,
    columns,
    concatenations,
    fast_math,
    filtering,
    layouts,
    narrowing,
    planes,
    quantized,
    rows,
    shuffles,
    volumes,
)
from tuner.engines.relax.machines import Machine
from tuner.engines.runtime import faults

_CALL_TIR = tvm.ir.Op.get("relax.call_tir")
_SHAPE = "relax.shape_to_tensor"
_PURE: dict[str, Callable[..., Any]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.negative": np.negative,
    "relax.divide": np.divide,
    "relax.sqrt": np.sqrt,
    "relax.isnan": np.isnan,
    "relax.less": np.less,
    "relax.where": np.where,
}


def fold(module: Any) -> Any:
    """Fold expressions of constants, for the operators that importers and layouts put around weights.

    ``FoldConstant`` compiles each of them with LLVM, about 60 ms apiece: 10 s for a network of 53 convolutions.
    """
    return relax.transform.CanonicalizeBindings()(calls.mutate(module, lambda _: _Folder()))


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        name = calls.operator(visited)
        if not name:
            return visited
        arguments = [self._resolved(argument) for argument in visited.args]
        folded = _shape(arguments[0]) if name == _SHAPE else _compute(name, arguments, visited.attrs)
        if folded is None:
            return visited
        # Given an array, relax.const would narrow 64 bits to 32.
        return relax.const(tvm.runtime.tensor(np.ascontiguousarray(folded).reshape(folded.shape)))

    def _resolved(self, argument: Any) -> Any:
        value = self.lookup_binding(argument) if isinstance(argument, relax.Var) else argument
        return argument if value is None else value


def _shape(value: Any) -> Any | None:
    """Return the array of a shape; None unless all of its sizes are known."""
    sizes = calls.sizes(value.args[0]) if calls.operator(value) == "relax.shape_of" else None
    return None if sizes is None else np.array(sizes, np.int64)


def _compute(name: str, arguments: list[Any], attributes: Any) -> Any | None:
    if not arguments or not isinstance(arguments[0], tvm.ir.GenericConst):
        return None
    first = arguments[0].value.numpy()
    if name == "relax.permute_dims":
        return first.transpose(attributes.axes and [int(axis) for axis in attributes.axes])
    if name == "relax.reshape" and isinstance(arguments[1], relax.ShapeExpr):
        return first.reshape([int(size) for size in arguments[1].values])
    if name == "relax.expand_dims":
        return np.expand_dims(first, tuple(int(axis) for axis in attributes.axis))
    if name == "relax.astype":
        return first.astype(str(attributes.dtype))
    if not all(isinstance(argument, tvm.ir.GenericConst) for argument in arguments):
        return None
    if name == "relax.take" and first.ndim == 1:
        return first.take(arguments[1].value.numpy())
    if name in _PURE:
        found = _PURE[name](*(argument.value.numpy() for argument in arguments))
        # numpy divides integers to floats; TVM does not.
        return found if found.dtype in (first.dtype, np.bool_) or name == "relax.where" else None
    return None


PRECISIONS = ("f32", "fp16", *narrowing.NUMBERS)


def precisions_of(target: Any) -> list[str]:
    """Return the precisions that a ``tvm.target.Target`` has instructions for, ``f32`` first."""
    return ["f32", *(each for each, numbers in narrowing.NUMBERS.items() if numbers.is_available(target))]


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """Everything that determines a model's tensor functions: equal values give equal tasks."""

    target: Any
    precision: str = "f32"
    layout: str | None = None
    """Layout of convolutions; None is NHWC on a CPU, where channels fill its vectors, and NCHW on a GPU."""
    rewrite: bool = False
    """Whether operators may be replaced by cheaper ones, see ``fast_math``."""

    @classmethod
    def of(cls, params: Json) -> Lowering:
        """Read a request. Raises EngineFailure ``unknown_target``, ``invalid_option`` or ``unsupported_dtype``."""
        layout = (params.get("options") or {}).get("layout")
        precision = params.get("precision") or "f32"
        faults.require_known("precision", precision, PRECISIONS)
        if layout is not None:
            faults.require_known("layout", layout, layouts.WANTED)
        target = targets.resolve(params["target"], params["threads"])
        numbers = narrowing.NUMBERS.get(precision)
        if numbers and not numbers.is_available(target):
            raise EngineFailure(
                "unsupported_dtype",
                f"{params['target']!r} lacks instructions for products of {numbers.text}",
                hint="Use precision f32, or a target that has them: 'llvm -mcpu=znver4', 'llvm -mcpu=sapphirerapids'.",
            )
        rewrite = bool(params.get("rewrite")) and not targets.is_gpu(target)
        return cls(target=target, precision=precision, layout=layout, rewrite=rewrite)


def lower(imported: importing.Imported, build: Lowering) -> Any:
    """Return an ``IRModule`` of unscheduled tensor functions with operators fused; weight layouts are still open."""
    transform = relax.transform
    layout = build.layout or ("NCHW" if targets.is_gpu(build.target) else "NHWC")
    with build.target, tvm.transform.PassContext(opt_level=3):
        precision = _arithmetic(imported.module, build)
        module = _apply(imported.module, [transform.DecomposeOpsForInference(), transform.CanonicalizeBindings()])
        if precision == "int8":
            module = quantized.spell_out(module)
        if build.precision == "fp16":
            module = _apply(module, [transform.ToMixedPrecision(out_dtype="float16")])
        module = fold(layouts.convert(fold(module), layout))
        machine = Machine.of(build.target)
        numbers = narrowing.NUMBERS.get(precision)
        has_pairs = False
        speed = numbers.speed(str(build.target.attrs.get("mcpu", ""))) if numbers else 1.0

        def filtered(module: Any) -> Callable[[Any], bool]:
            takes = narrowing.takes(module, precision)
            return lambda call: build.rewrite and filtering.pays(call, machine, speed=speed if takes(call) else 1.0)

        if build.rewrite:
            module = fast_math.plain(shuffles.sink(columns.pad(module, machine, filtered(module))))
            if not numbers:
                module = planes.read(module)
            if precision != "bf16":
                module, has_pairs = chains.with_borders(module, machine, filtered(module))
        if numbers:
            module = narrowing.narrow(module, precision, filtered(module))
        return _apply(
            module,
            [
                relax.backend.DispatchSampling(),
                relax.backend.DispatchSortScan(),
                transform.LegalizeOps(_legalizations(build)),
                transform.AnnotateTIROpPattern(),
                transform.FoldConstant(),
                transform.FuseOps(),
                transform.FuseTIR(),
                transform.DeadCodeElimination(),
                *([chains.CHAINING] if has_pairs else []),
                *([attention.join(machine)] if build.rewrite else []),
                transform.AttachAttrLayoutFreeBuffers(),
            ],
        )


def _arithmetic(module: Any, build: Lowering) -> str:
    """Return the precision of products: in builds that may be rewritten, quantized models have their own.

    Raises EngineFailure ``unsupported_dtype`` if the network has control flow, which narrow builds do not support, or
    if the build is in int8 and the model is not quantized.
    """
    is_quantized, branches = quantized.is_quantized(module), calls.branches(module)
    if build.precision in narrowing.NUMBERS and branches:
        reason = f"the model cannot be converted to {build.precision}: it has control flow"
        raise EngineFailure("unsupported_dtype", reason, hint="Use precision f32.")
    if build.precision == "int8" and not is_quantized:
        raise EngineFailure("unsupported_dtype", "an int8 build needs a quantized model", hint="Use precision f32.")
    has_own = is_quantized and build.rewrite and build.precision == "f32" and not branches
    return "int8" if has_own and narrowing.NUMBERS["int8"].is_available(build.target) else build.precision


def _legalizations(build: Lowering) -> dict[str, Any]:
    joined = {} if targets.is_gpu(build.target) else concatenations.legalizations()
    machine = None if targets.is_gpu(build.target) else Machine.of(build.target)
    joined |= shuffles.legalizations(machine) | volumes.legalizations()
    if not build.rewrite:
        return joined
    filtered = filtering.computing(Machine.of(build.target))
    convolution = calls.legalized(calls.CONVOLUTION, filtered, planes.computed)
    return joined | fast_math.legalizations() | rows.legalizations() | {calls.CONVOLUTION: convolution}


def finish(module: Any, target: Any) -> Any:
    """Rearrange the weights to the layouts that schedules ask for, at build time."""
    transform = relax.transform
    with target, tvm.transform.PassContext(opt_level=3):
        split = transform.CanonicalizeBindings()(_split_layout_rewrites(module))
        return _apply(_with_computed_calls(split), [transform.CanonicalizeBindings(), transform.DeadCodeElimination()])


def _with_computed_calls(module: Any) -> Any:
    """Replace calls of tensor functions with nothing but constants by their results.

    ``FoldConstant`` compiles a module for each call, about 60 ms apiece; here all functions are in one.
    """
    names: set[str] = set()
    networks = [(variable, each) for variable, each in module.functions_items() if isinstance(each, relax.Function)]
    for _, network in networks:
        relax.analysis.post_order_visit(network, lambda call: names.update(_computable(call)))
    if names:
        functions = {name: module[name].with_attr("global_symbol", name) for name in names}
        compiled = tvm.compile(tvm.IRModule(functions), tvm.target.Target("llvm"))
        for variable, network in networks:
            module[variable] = _Computed(compiled).visit_expr(network)
    return module


def _computable(call: Any) -> list[str]:
    """Return the name of the function that ``call`` applies to constants alone, if it does.

    Functions without arguments, which fill tensors, stay: their results would be stored.
    """
    if not isinstance(call, relax.Call) or call.op != _CALL_TIR:
        return []
    function, arguments = call.args[0], call.args[1].fields
    is_computable = arguments and all(isinstance(each, tvm.ir.GenericConst) for each in arguments)
    return [function.name_hint] if is_computable else []


@relax.expr_functor.mutator
class _Computed(relax.PyExprMutator):
    def __init__(self, compiled: Any) -> None:
        super().__init__()
        self._compiled = compiled

    def visit_call_(self, call: Any) -> Any:
        for name in _computable(call):
            several = isinstance(call.ty, relax.TupleType)
            types = call.ty.fields if several else [call.ty]
            results = [tvm.runtime.empty([int(size) for size in each.shape], each.dtype) for each in types]
            self._compiled[name](*(each.value for each in call.args[1].fields), *results)
            constants = [relax.const(result) for result in results]
            return relax.Tuple(constants) if several else constants[0]
        return call


def _split_layout_rewrites(module: Any) -> Any:
    """Make functions of their own of the rearrangements of weights.

    TVM's pass fails on functions without blocks: those that only call TVM's runtime, as sorting does, and those made of
    plain loops, such as ``cumsum`` and ``scatter_elements``. They have no weights to rearrange.
    """
    functions = dict(module.functions_items())
    without = {
        variable: function
        for variable, function in functions.items()
        if isinstance(function, tirx.PrimFunc) and not _has_blocks(function.body.block.body)
    }
    others = {variable: function for variable, function in functions.items() if variable not in without}
    split = relax.transform.SplitLayoutRewritePreproc()(tvm.IRModule(others, attrs=module.attrs))
    for variable, function in without.items():
        split[variable] = function
    return split


def _has_blocks(statement: Any) -> bool:
    if hasattr(statement, "block"):
        return True
    inner = list(statement.seq) if hasattr(statement, "seq") else [getattr(statement, "body", None)]
    return any(_has_blocks(each) for each in inner if each is not None)


def _apply(module: Any, passes: list[Any]) -> Any:
    return tvm.transform.Sequential(passes)(module)
