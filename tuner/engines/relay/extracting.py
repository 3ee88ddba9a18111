"""Extraction of a model's tuning tasks and how often it runs each."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import Any

import tvm
from tvm import relay
from tvm.autotvm.task.topi_integration import TaskExtractEnv
from tvm.relay.backend import te_compiler

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import compiling, corrections, defaults, importing, simplifying, workloads
from tuner.engines.relay.templates import dispatching
from tuner.engines.runtime import progress


def extract(imported: importing.Imported, target: Any, *, keep_layout: bool, rewrite: bool = False) -> list[Json]:
    """Return the tasks, most work first, as ``domain.tuning_tasks.ExtractedTask``.

    With ``rewrite`` a convolution that one of our templates may compute becomes two tasks with the same
    ``alternatives``; the faster one is built.

    Finds the tasks of ``autotvm.task.extract_from_program``, but traces only the choice of implementations: that
    function also schedules and lowers every operator, which takes 18 s instead of 10 s on a small network.
    """
    corrections.use_threads(1)
    counts, operators = _trace(imported, target)
    tasks = []
    for (name, arguments), weight in counts.items():
        if not dispatching.is_allowed(name, rewrite=rewrite):
            continue
        with contextlib.suppress(tvm.topi.InvalidShapeError):
            tasks.append((workloads.create(name, arguments, target), weight, operators[name, arguments]))
    tasks.sort(key=lambda entry: -entry[0].flop * entry[1])
    places: dict[Any, list[int]] = {}
    for position, (*_, operator) in enumerate(tasks):
        places.setdefault(operator, []).append(position)
    return [
        {
            "position": position,
            "name": task.name,
            "workload_key": workloads.key(task),
            "description": workloads.describe(task),
            "weight": weight,
            "flop": float(task.flop),
            "space_size": defaults.searched(task) if keep_layout else len(task.config_space),
            "alternatives": places[operator][0] if len(places[operator]) > 1 else None,
        }
        for position, (task, weight, operator) in enumerate(tasks)
    ]


def _trace(imported: importing.Imported, target: Any) -> tuple[dict[Any, int], dict[Any, Any]]:
    """Return each task's number of runs, and a representative of the tasks that compute the same operators."""
    calls: Counter[Any] = Counter()
    examples: dict[Any, Any] = {}

    def visit(node: Any) -> None:
        if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
            signature = (node.op.name, str(node.attrs), tuple(str(argument.checked_type) for argument in node.args))
            calls[signature] += 1
            examples.setdefault(signature, node)

    # Templates are written for the layout before AlterOpLayout, which itself queries their configurations.
    for function in simplifying.simplified(imported, target).module.functions.values():
        if isinstance(function, relay.Function):
            relay.analysis.post_order_visit(function, visit)
    counts: dict[Any, int] = {}
    operators: dict[Any, Any] = {}
    progress.begin("extract", len(examples))
    for signature, node in examples.items():
        found = _tasks(node, target)
        operator = next((operators[each] for each in found if each in operators), found[0] if found else None)
        for each in found:
            counts[each] = counts.get(each, 0) + calls[signature]
            operators.setdefault(each, operator)
    return counts, operators


def _tasks(call: Any, target: Any) -> list[Any]:
    """Return the ``(name, args)`` that one operator's implementations register while AutoTVM traces."""
    if call.op.get_attr("FTVMStrategy") is None:
        return []
    inputs = [_placeholder(argument.checked_type) for argument in call.args]
    if any(placeholder is None for placeholder in inputs):
        return []
    environment = TaskExtractEnv.get()
    environment.reset(None)
    with environment, compiling.dispatch([]), target:
        te_compiler.select_implementation(call.op, call.attrs, inputs, call.checked_type, target)
    return [(name, tuple(arguments)) for name, arguments in environment.get_tasks()]


def implementations(call: Any, target: Any) -> list[str]:
    """Return the workload keys of the AutoTVM templates that can compute one operator."""
    return [json.dumps([name, arguments], separators=(",", ":")) for name, arguments in _tasks(call, target)]


def _placeholder(kind: Any) -> Any:
    """Return a placeholder of that type; None for tuples, which no tunable operator accepts."""
    if not isinstance(kind, relay.TensorType):
        return None
    return tvm.te.placeholder([int(size) for size in kind.shape], dtype=kind.dtype)
