"""The subgraphs of a network that Ansor tunes, and how often the network runs each."""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
from tvm import auto_scheduler
from tvm.auto_scheduler import relay_integration

from tuner.engines.protocol import faults
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import speedups
from tuner.engines.relay.ansor import networks, workloads

ENDLESS = 1 << 40
"""``domain.tuning_tasks.ENDLESS``"""


def extract(params: Json, target: Any) -> list[Json]:
    """Tasks, those with most work first; each has its definition as a file in ``params["out_dir"]``, where given."""
    tasks: list[Json] = []
    for key, (weight, function) in _extract(networks.of(params), str(target)).items():
        dag = workloads.search_task(key, target).compute_dag
        tasks.append(
            {
                "name": workloads.anchor(dag).name,
                "workload_key": key,
                "description": workloads.describe(_operators(function), dag),
                "weight": weight,
                "flop": workloads.flop(dag),
                "space_size": ENDLESS,
                "definition": _write_definition(key, params.get("out_dir")),
            }
        )
    tasks.sort(key=lambda task: -task["flop"] * task["weight"])
    return [{"position": position, **task} for position, task in enumerate(tasks)]


def ensure_known(params: Json, target: Any) -> None:
    """Make the workload of a ``tune`` request known, from its definition or else from the model.

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
    """Make every workload of the network known."""
    _extract(networks.of(params), str(target))


@lru_cache(maxsize=4)
def _extract(network: networks.Network, target: str) -> dict[str, tuple[int, str]]:
    """How often the network runs each workload, and the name of a function of it, by key.

    TVM's registry then knows all of these workloads.
    """
    imported = networks.load(network)
    speedups.use_threads(1)
    try:
        with _every_error():
            tasks, weights = auto_scheduler.extract_tasks(imported.module, imported.params, tvm.target.Target(target))
    except Exception as error:
        # Whatever a pass, a strategy or a schedule raised, as the text of a TVMError.
        raise faults.failure("compile_failed", "TVM cannot extract tasks", error) from error
    return {
        str(task.workload_key): (int(weight), str(task.desc).split(",")[0])
        for task, weight in zip(tasks, weights, strict=True)
    }


@contextmanager
def _every_error() -> Iterator[None]:
    """TVM looks through the network in a thread, in which errors other than its own are lost.

    The operators before one that raised would be tuned, for a network that cannot be built.
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
    """``vm_mod_fused_nn_conv2d_add_nn_relu_1`` is ``conv2d+add+relu``."""
    rest = re.sub(r"_\d+$", "", function_name.removeprefix("vm_mod_").removeprefix("fused_"))
    found: list[str] = []
    for name in _operator_names():
        # Longest first, so that no operator is taken for the beginning of another's name.
        rest = re.sub(rf"(?<![a-z0-9]){re.escape(name.replace('.', '_'))}(?![a-z0-9])", f" {len(found)} ", rest)
        found.append(name)
    names = [found[int(part)] if part.isdigit() else part for part in rest.replace("_", " ").split()]
    return "+".join(name.removeprefix("nn.").removeprefix("contrib_") for name in names)


@lru_cache(maxsize=1)
def _operator_names() -> tuple[str, ...]:
    return tuple(sorted(map(str, tvm.ir.Op.list_op_names()), key=lambda name: (-len(name), name)))


def _write_definition(workload_key: str, folder: str | None) -> str | None:
    if folder is None:
        return None
    name = f"ansor-{hashlib.sha256(workload_key.encode()).hexdigest()[:24]}.json"
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / name).write_text(workloads.definition(workload_key), encoding="utf-8")
    return name
