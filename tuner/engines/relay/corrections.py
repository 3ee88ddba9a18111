"""Patches to TVM 0.19: faster imports and builds, and some models and errors mended."""

from __future__ import annotations

import functools
from typing import Any

import tvm
from tvm import autotvm, relay, te
from tvm.ir import diagnostics
from tvm.ir.diagnostics import DiagnosticLevel
from tvm.relay.backend import te_compiler
from tvm.relay.frontend import common
from tvm.relay.frontend import onnx as frontend
from tvm.relay.qnn.op import legalizations
from tvm.relay.qnn.op.op import register_qnn_legalize

from tuner.engines.runtime import progress

_BIG_CORES = 1
_MOST_LANES = 512
_config_threadpool = tvm.get_global_func("runtime.config_threadpool")


def install() -> None:
    """Patch this process's TVM; idempotent.

    * ``tvm.support.libinfo`` is memoized: a build of a small network calls it 2600 times, 7 ms each, for constant data.
    * The importer infers types of what a node adds, see ``_infer_type``.
    * Functions that only compute constants are built once, see ``_build_constant``.
    * Operators are counted while they are imported and built, see ``tuner.engines.runtime.progress``.
    * Loops of more than ``_MOST_LANES`` are vectorized by LLVM, see ``_vectorize``.
    * Products of bytes become products of 16 bits, see ``_widen``.
    * Type errors contain the checker's diagnostics, and in ``node`` the node with the error. TVM prints them and raises
      "one or more error diagnostics were emitted, please check diagnostic render".
    """
    if not hasattr(tvm.support.libinfo, "cache_info"):
        tvm.support.libinfo = functools.lru_cache(maxsize=1)(tvm.support.libinfo)
        # te_compiler holds a reference of its own; another build of TVM may not.
        if hasattr(te_compiler, "libinfo"):
            te_compiler.libinfo = tvm.support.libinfo
        tvm.register_func("relay.backend.build", _build_constant, override=True)
        legalizations.is_fast_int8_on_intel = lambda: False
        register_qnn_legalize("qnn.batch_matmul", _widen)
        te.Stage.vectorize = functools.partialmethod(_vectorize, te.Stage.vectorize)
        te_compiler.select_implementation = progress.counting(te_compiler.select_implementation)
        common.infer_type = frontend.infer_type = functools.partial(_infer_type, common.infer_type)
        frontend.GraphProto._convert_operator = progress.counting(frontend.GraphProto._convert_operator)
    autotvm.GLOBAL_SCOPE.silent = True
    diagnostics.override_renderer(_raise)


def _infer_type(usual: Any, node: Any, mod: Any = None) -> Any:
    """Return the expression ``node`` with its type, inferred from the known ones of its operands.

    TVM infers the types of all that comes before it once more, for each node: the time of an import was quadratic.
    """
    if mod is not None or isinstance(node, relay.Function | relay.Let):
        return usual(node, mod)
    relay.transform.InferTypeLocal(node)
    return node


def _vectorize(stage: Any, usual: Any, axis: Any) -> None:
    """Vectorize ``axis`` unless it is so long that LLVM, given one vector of it, does not come to an end.

    TVM's schedules of one-dimensional convolutions vectorize whole lines: with 3981 outputs at a stride of 4, LLVM 22
    had not ended after 18 minutes. It vectorizes a plain loop by itself.
    """
    extent = axis.dom.extent if axis.dom is not None else None
    if not isinstance(extent, tvm.tir.IntImm) or int(extent) <= _MOST_LANES:
        usual(stage, axis)


def _widen(attributes: Any, inputs: Any, types: Any) -> Any:
    """Return a product of batches of bytes as one of 16-bit numbers with sums in int32.

    TVM has this for convolutions and dense layers, on CPUs without fast products of bytes. Its schedules of bytes for
    the others call ``vpdpbusd`` with vectors of int32, which ends the process in LLVM 22; where there is no such
    instruction they saturate the sum of two products.
    """
    return legalizations.helper_no_fast_int8_hw_legalization(attributes, inputs, types, relay.nn.batch_matmul)


_constants_built: dict[int, list[tuple[Any, Any]]] = {}


def _build_constant(module: Any, target: Any, target_host: Any = None) -> Any:
    """Build a function that FoldConstant runs, once; replaces ``tvm.relay.backend._backend.build``.

    TVM builds each of them anew, optimized, to run it once. Most of those left by ``simplifying.Folding`` occur several
    times in a network, and none is worth optimizing. Targets other than the default of constants are built as TVM does.
    """
    if not isinstance(module, tvm.IRModule) or target.kind.name != "llvm" or "mcpu" in target.attrs:
        return tvm.driver.build(module, target=target, target_host=target_host or None)
    same_hash = _constants_built.setdefault(tvm.ir.structural_hash(module), [])
    for known, library in same_hash:
        if tvm.ir.structural_equal(known, module):
            return library
    library = tvm.driver.build(module, target=tvm.target.Target("llvm -opt-level=0"))
    same_hash.append((module, library))
    return library


def use_threads(threads: int) -> None:
    """Set TVM's pool to ``threads`` threads.

    Call with 1 before compiling: while constants fold, the pool's idle threads spin in sched_yield and take the other
    cores from the compiler (61 s instead of 40 s for a small network on two cores).
    """
    _config_threadpool(_BIG_CORES, threads)


_WORST = (DiagnosticLevel.BUG, DiagnosticLevel.ERROR)
_FOLLOWING = "The type inference pass was unable to infer a type"
"""Prefix of the diagnostics of expressions around the one with an error."""


def _raise(context: Any) -> None:
    worst = [each for each in context.diagnostics if each.level in _WORST]
    messages = [(" ".join(str(each.message).split()), each.span) for each in worst]
    causes = [each for each in messages if not each[0].startswith(_FOLLOWING)] or messages
    if causes:
        error = tvm.error.DiagnosticError("; ".join(dict.fromkeys(message for message, _ in causes)))
        span = causes[0][1]
        # The importer's name for the node; types are often inferred only when a later node is imported.
        error.node = span.source_name.name if span else None
        raise error
