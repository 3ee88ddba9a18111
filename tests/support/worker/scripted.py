"""Engines that do what a script says: deterministic latencies, failures and crashes where a test wants them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from domain import errors
from domain.models import TensorSpec
from domain.ports import Canceled, Engine, OnEvent
from storage.tables import digest_of
from tuner.host.inspection import Prepared
from worker.engines import EngineOptions

HELLO: dict[str, Any] = {
    "toolchain": {"engine": "relay", "tvm": "0.19.0", "llvm": "22"},
    "engine": "relay",
    "mcpu": "znver3",
    "cpus": ["znver3", "skylake-avx512"],
    "kinds": ["llvm"],
    "tuners": ["autotvm"],
}
RELAX: dict[str, Any] = {
    **HELLO,
    "toolchain": {"engine": "relax", "tvm": "0.27.0", "llvm": "22"},
    "engine": "relax",
    "kinds": ["llvm", "cuda"],
    "tuners": ["metaschedule"],
}
BOTH = {"relay": HELLO, "relax": RELAX, "onnx": HELLO}
THREE = {**BOTH, "relay": {**HELLO, "tuners": ["ansor", "autotvm"]}}
"""Engines of two tuners, and of all three."""
_KEYS = {"autotvm": "", "ansor": "ansor:", "metaschedule": "ms:"}
"""Before the name of a task: workload keys of different tuners never meet."""
_CHOSEN = "chosen.jsonl"
"""File of a build with its schedules."""
_LOOK_SECONDS = 0.25
"""Between two looks whether a request is canceled."""
SPEC = TensorSpec(name="x", dtype="float32", shape=(1, 3, 8, 8))


@dataclass(kw_only=True)
class Script:
    """What the engines of a test do, and what they were asked."""

    tasks: Sequence[str] = ("conv", "dense")
    beside: Sequence[str] = ()
    """Tasks of Ansor in builds of AutoTVM."""
    space_size: int = 1000
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Tasks with other workload keys than their names."""
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """Of tasks; others are described by their names."""
    alternatives: Mapping[str, int] = field(default_factory=dict)
    """Of tasks."""
    failing: frozenset[str] = frozenset()
    """Workloads of which every trial fails."""
    failing_schedules: frozenset[int] = frozenset()
    """Indices of schedules that cannot be built."""
    slow_schedules: frozenset[int] = frozenset()
    """Indices of schedules that take 100 ms; others are the faster, the higher their index."""
    crashing_candidates: frozenset[int] = frozenset()
    """Indices of imported schedules that crash the engine when it checks them."""
    crashing: frozenset[str] = frozenset()
    """Workloads whose every round crashes the engine at its second trial."""
    wrong: frozenset[str] = frozenset()
    """Variants that compute nonsense, or ``variant-engine``."""
    wrong_files: frozenset[str] = frozenset()
    """Files for TVM that compute nonsense, or ``variant-file``."""
    precisions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What each engine says that the target has instructions for."""
    inaccurate: frozenset[str] = frozenset()
    """Precisions in which builds are too far from the reference."""
    kept: tuple[str, ...] = ()
    """Layers that int8 and bf16 leave in float32."""
    labelled: bool = False
    """Whether data sets have labels."""
    wrong_on_labels: frozenset[str] = frozenset()
    """Precisions in which builds are near the reference, but wrong by the labels."""
    other_in_other_sizes: frozenset[str] = frozenset()
    """``split`` and ``padded``: what changes the results of a model."""
    unbuildable: frozenset[tuple[str, int]] = frozenset()
    """Workload and index of schedules with which no network can be built."""
    poisoned: frozenset[tuple[str, int]] = frozenset()
    """Workload and index of schedules with which a build computes nonsense."""
    rewritings: Mapping[str, int] = field(default_factory=dict)
    """What models are rewritten by, and in how many places."""
    hellos: dict[str, dict[str, Any]] = field(default_factory=lambda: {"relay": HELLO, "onnx": HELLO})
    """Of the engines that are installed."""
    speed: Mapping[str, float] = field(default_factory=dict)
    """Factor on the latencies of an engine's builds, or of a tuner's trials."""
    trial_details: Mapping[str, Any] = field(default_factory=dict)
    """Added to every ``trial`` event."""
    queue_seconds: float = 0.0
    """What each round says that it waited at a tracker."""
    lost: str | None = None
    """A device that every round tells as lost."""
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Records that builds with a ``graph_layout`` would use."""
    seconds_per_trial: float = 0.0
    sleep: Callable[[float], None] = time.sleep
    """What passes the seconds of a trial."""
    run_seconds: Mapping[str, float] = field(
        default_factory=lambda: {"reference": 3e-3, "untuned": 2e-3, "tuned": 1e-3}
    )
    before_trial: Callable[[int], None] = lambda _: None
    """Called with the number of trials measured so far, before another one is."""
    on_trial: Callable[[int], None] = lambda _: None
    """Called with the number of trials measured so far, after a trial is spooled and before it is told."""
    takes: Callable[[str, dict[str, Any]], float] = lambda _method, _params: 0.0
    """Seconds that a request takes; it ends with its timeout."""
    tells: Callable[[str, dict[str, Any]], Sequence[tuple[str, dict[str, Any]]]] = lambda _method, _params: ()
    """Events of a request, before its answer."""
    unattended: list[str] = field(default_factory=list)
    """Requests that nothing could end before their time."""
    refuse: Callable[[str, dict[str, Any]], None] = lambda _method, _params: None
    """Called with every request; may raise."""
    standalone: bool = False
    """Whether builds have a library, which the library engine runs."""
    layers: Callable[[Mapping[str, int]], list[dict[str, Any]]] | None = None
    """The profile of a build, by the index of each workload's schedule."""
    memory_bytes: int | None = None
    """What engines may use for the model."""
    limited: list[tuple[str, int | None]] = field(default_factory=list)
    """The memory limit of each request, by method."""
    measured: list[tuple[str, str]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    started: list[str] = field(default_factory=list)

    def start(self, name: str, given: EngineOptions) -> Engine:
        if name not in self.hellos:
            raise errors.EngineNotInstalled(f"the {name} engine is not installed")
        self.started.append(name)
        given.log.parent.mkdir(parents=True, exist_ok=True)
        return ScriptedEngine(self, {**self.hellos[name], "engine": name})

    def cache_bytecode(self, name: str) -> None:
        """There is none."""

    def prepare(
        self,
        model: Path,
        shapes: Mapping[str, Sequence[int]],
        out: Path,
        *,
        log: Path,
        canceled: Callable[[], bool] | None = None,
    ) -> Prepared:
        if canceled is None:
            self.unattended.append("prepare")
        self.refuse("prepare", {"shapes": dict(shapes)})
        out.write_bytes(model.read_bytes())
        spec = replace(SPEC, shape=tuple(shapes.get("x", SPEC.shape)))
        return Prepared(
            path=out,
            inputs=(spec,),
            outputs=(spec,),
            operators={"Conv": 1},
            folded=True,
            memory_bytes=self.memory_bytes,
        )

    def asked(self, method: str) -> list[dict[str, Any]]:
        return [params for asked, params in self.requests if asked == method]


def refusing(method: str, error: Exception, **of: str) -> Callable[[str, dict[str, Any]], None]:
    """For ``Script.refuse``: requests of this method end with the error, if these parameters contain these texts."""

    def refuse(asked: str, params: dict[str, Any]) -> None:
        if asked == method and all(text in str(params.get(name)) for name, text in of.items()):
            raise error

    return refuse


class ScriptedEngine:
    def __init__(self, script: Script, hello: dict[str, Any]) -> None:
        self._script = script
        self._hello = hello
        self._alive = True
        self._memory: int | None = None
        self._known: dict[str, set[int]] = {}

    @property
    def hello(self) -> dict[str, Any]:
        return self._hello

    @property
    def alive(self) -> bool:
        return self._alive

    @property
    def pid(self) -> None:
        return None

    def limit_memory(self, data_bytes: int | None) -> None:
        self._memory = data_bytes

    def close(self) -> None:
        self._alive = False

    def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None,
        on_event: OnEvent | None = None,
        canceled: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        if not self._alive:
            raise errors.EngineCrashed("the engine is gone")
        self._script.limited.append((method, self._memory))
        self._script.requests.append((method, {**params, "engine": self._hello["engine"]}))
        if canceled is None or timeout is None:
            self._script.unattended.append(method)
        try:
            if canceled and canceled():
                raise Canceled
            for kind, data in self._script.tells(method, {**params, "engine": self._hello["engine"]}):
                if on_event:
                    on_event(kind, data)
            seconds = self._script.takes(method, {**params, "engine": self._hello["engine"]})
            self._pass_time(seconds, timeout, canceled or (lambda: False))
            self._script.refuse(method, {**params, "engine": self._hello["engine"]})
            if method == "tune":
                return self._tune(params, on_event or (lambda _kind, _data: None), canceled or (lambda: False))
            answer: dict[str, Any] = getattr(self, f"_{method}")(params)
            return answer
        except errors.EngineRequestFailed:
            raise
        except BaseException:
            self._alive = False
            raise

    def _pass_time(self, seconds: float, timeout: float | None, canceled: Callable[[], bool]) -> None:
        left = seconds if timeout is None else min(seconds, timeout)
        while left > 0:
            if canceled():
                raise Canceled
            self._script.sleep(min(left, _LOOK_SECONDS))
            left -= _LOOK_SECONDS
        if timeout is not None and seconds > timeout:
            raise errors.EngineTimeout("it exceeded its time limit")

    def _check(self, params: dict[str, Any]) -> dict[str, Any]:
        assert Path(params["model"]).is_file()
        offered = self._script.precisions.get(self._hello["engine"], ["f32"])
        told = {"lanes": 16, "precisions": list(offered)} if "target" in params else {}
        return {"operators": {"Conv": 1}, **told}

    def _quantize(self, params: dict[str, Any]) -> dict[str, Any]:
        assert all(Path(path).is_file() for path in params["inputs"])
        Path(params["out_path"]).write_bytes(b"quantized " + Path(params["path"]).read_bytes())
        return {"quantized": {"Conv": 1}, "kept": list(self._script.kept), "ranges": "entropy", "share": 0.5}

    def _narrow(self, params: dict[str, Any]) -> dict[str, Any]:
        assert all(Path(path).is_file() for path in params["inputs"])
        if self._script.kept:
            Path(params["out_path"]).write_bytes(b"narrowed " + Path(params["path"]).read_bytes())
        return {"layers": 9, "kept": list(self._script.kept), "share": 0.5}

    def _rewrite(self, params: dict[str, Any]) -> dict[str, Any]:
        if self._script.rewritings:
            Path(params["out_path"]).write_bytes(b"rewritten " + Path(params["path"]).read_bytes())
        return {"applied": dict(self._script.rewritings), "undone": {}}

    def _make_inputs(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"paths": [_touch(Path(params["out_dir"]) / f"{seed}.npz") for seed in params["seeds"]]}

    def _split_rows(self, params: dict[str, Any]) -> dict[str, Any]:
        assert Path(params["path"]).is_file()
        folder = Path(params["out_dir"])
        names = {name: [_touch(folder / f"{name}-{run}.npz") for run in params["runs"]] for name in ("rows", "labels")}
        return {"paths": names["rows"], "labels": names["labels"] if self._script.labelled else []}

    def _run(self, params: dict[str, Any]) -> dict[str, Any]:
        assert Path(params["inputs"]).is_file()
        Path(params["outputs"]).parent.mkdir(parents=True, exist_ok=True)
        poisoned = (Path(params["bundle"]) / "poisoned").exists() if "bundle" in params else False
        if params.get("file"):
            assert (Path(params["bundle"]) / params["file"]).is_file()
            variant = Path(params["outputs"]).name.split("-")[0]
            poisoned |= bool({params["file"], f"{variant}-{params['file']}"} & self._script.wrong_files)
        Path(params["outputs"]).write_text("poisoned" if poisoned else self._hello["engine"])
        return {"seconds": 0.001, "outputs": [], "samples": []}

    def _run_perturbed(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"paths": [_touch(Path(folder) / "00-1.npz") for folder in params["folders"]]}

    def _time(self, params: dict[str, Any]) -> dict[str, Any]:
        folder = Path(params["bundle"]).name if "bundle" in params else "reference"
        known = self._script.run_seconds
        usual = known.get("reference", 1.5e-3) if params.get("runtime") else 1.5e-3
        # The rewritten network without records is as slow as the network without them.
        kind = "untuned" if folder.startswith("tuned-rewritten") else folder.split("-")[0]
        seconds = known.get(folder, known.get(kind, usual))
        return {"samples": [seconds * self._script.speed.get(self._hello["engine"], 1.0)] * params["repeat"]}

    def _profile(self, params: dict[str, Any]) -> dict[str, Any]:
        [seconds] = self._time({**params, "repeat": 1})["samples"]
        tensors = {"inputs": [[1, 3, 8, 8]], "outputs": [[1, 4, 8, 8]]}
        if "bundle" in params and self._script.layers:
            layers = self._script.layers(_chosen(Path(params["bundle"])))
            return {"seconds": math.fsum(layer["seconds"] for layer in layers), "layers": layers}
        if "bundle" in params:
            layer = {**tensors, "name": "fused_conv2d", "weights": [[4, 3, 3, 3]], "bytes": 2224}
        elif self._hello["toolchain"]["engine"] == "openvino":
            layer = {**tensors, "name": "/Conv", "operator": "Convolution", "originals": ["/Conv"]}
        else:
            node = {**tensors, "name": "/Conv", "operator": "Conv", "flop": 13824.0}
            layer = {**node, "inputs": [[1, 3, 8, 8], [4, 3, 3, 3]]}
        return {"seconds": seconds, "layers": [{**layer, "seconds": seconds * 0.75}]}

    def _choose(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"lines": self._script.choices.get(str(params["options"].get("graph_layout")), ["usual"])}

    def _compare(self, params: dict[str, Any]) -> dict[str, Any]:
        variant = Path(params["actual"]).name.split("-")[0]
        engine = Path(params["actual"]).read_text()
        accurate = params["precision"] not in self._script.inaccurate
        passed = accurate and engine != "poisoned" and not {variant, f"{variant}-{engine}"} & self._script.wrong
        error = {"max_abs": 0.0 if passed else 1e308, "max_rel": 0.0 if accurate else 0.4}
        counts = {"elements": 8, "finite": 8, "parts": 1, "within": int(passed)}
        output = {"output": "y", "dtype": "float32", **counts, **error}
        told: dict[str, Any] = {"outputs": [{**output, "atol": 1e-5, "rtol": 1e-4, "passed": passed}]}
        if "labels" in params:
            assert Path(params["labels"]).is_file()
            right = params["precision"] not in self._script.wrong_on_labels
            hits = {"reference": {"top1": 1, "top5": 1}, "build": {"top1": int(right), "top5": 1}}
            told["labelled"] = {"output": "y", "count": 1, **hits}
        return told

    def _compile(self, params: dict[str, Any]) -> dict[str, Any]:
        added = {
            "object": ["mod.tar"],
            "onnx": ["model.onnx", "libtunesmith_ort.so"],
            "static": ["libmodel.a", "libmodel.h"],
            "system-lib": ["mod.a"],
        }
        extra = added.get(params["format"], [])
        weights = [] if self._hello["engine"] == "relax" else ["mod.params"]
        library = ["libmodel.so", "tunesmith.h"] if self._script.standalone else []
        if params["part"]:
            library.append("model.part" if self._script.standalone else "needs-tvm.txt")
        files = ["mod.so", "mod.json", *weights, *extra, *library]
        for name in files:
            _touch(Path(params["out_dir"]) / name)
        chosen = _fastest(params["records"])
        if {(line["key"], line["index"]) for line in map(json.loads, chosen)} & self._script.unbuildable:
            raise errors.EngineRequestFailed("compile_failed", "TVM cannot compile the model")
        if any(self._is_poisoned(line) for line in chosen):
            _touch(Path(params["out_dir"]) / "poisoned")
        (Path(params["out_dir"]) / _CHOSEN).write_text("\n".join(chosen))
        return {"files": files, "records": chosen, "seconds": 0.0}

    def _compare_sizes(self, params: dict[str, Any]) -> dict[str, Any]:
        assert all(Path(path).is_file() for path in [params["small"], params["large"], *params["inputs"]])
        how = "split" if params["padding"] is None else "padded"
        passed = how not in self._script.other_in_other_sizes
        return {"outputs": [{"output": "y", "max_rel": 0.0 if passed else 0.25, "passed": passed}]}

    def _join(self, params: dict[str, Any]) -> dict[str, Any]:
        assert all(Path(part["path"]).is_file() for part in params["parts"])
        files = ["libmodel.so", "tunesmith.h"]
        for name in files:
            _touch(Path(params["out_dir"]) / name)
        if "joint" in self._script.wrong:
            _touch(Path(params["out_dir"]) / "poisoned")
        return {"files": files, "weight_bytes": 1_000_000, "separate_weight_bytes": 2_000_000, "exact": []}

    def _audit(self, params: dict[str, Any]) -> dict[str, Any]:
        chosen = _fastest(params["records"])
        wrong = [{"line": line, "max_abs": 1.0, "max_rel": 0.5} for line in chosen if self._is_poisoned(line)]
        return {"checked": len(chosen), "wrong": wrong, "failed": [], "skipped": []}

    def _is_poisoned(self, line: str) -> bool:
        schedule = json.loads(line)
        return (schedule["key"], schedule["index"]) in self._script.poisoned

    def _extract(self, params: dict[str, Any]) -> dict[str, Any]:
        prefix = _KEYS[params["tuner"]]
        narrow = f"{params['precision']}:" if params["precision"] in ("bf16", "int8") else ""
        tasks = [
            {
                "position": position, "name": f"{name}.x86",
                "description": self._script.descriptions.get(name, name),
                "workload_key": f'["{prefix}{narrow}{self._script.renamed.get(name, name)}"]',
                "weight": 1, "flop": 1e6, "space_size": self._script.space_size,
                "definition": self._define(params, name) if prefix else None,
                "alternatives": self._script.alternatives.get(name),
            }
            for position, name in enumerate(self._script.beside if params.get("beside") else self._script.tasks)
        ]  # fmt: skip
        return {"tasks": tasks}

    def _define(self, params: dict[str, Any], name: str) -> str:
        (Path(params["out_dir"]) / f"{name}.json").write_text(f"the definition of {name}")
        return f"{name}.json"

    def _tune(self, params: dict[str, Any], on_event: OnEvent, canceled: Callable[[], bool]) -> dict[str, Any]:
        key = params["workload_key"]
        if _KEYS[params["tuner"]]:
            assert Path(params["task"]).read_text().startswith("the definition of ")
        if self._script.lost:
            on_event("device", {"device": self._script.lost, "state": "lost", "message": "it fell silent"})
        if params.get("fresh"):
            self._known.pop(key, None)
        known = self._known.setdefault(key, set())
        known |= _measured_before(params["history"], key)
        offered = self._adopted(params, known, on_event)
        left = params["seconds"]
        for number in range(params["trials"]):
            if left is not None and number * self._script.seconds_per_trial >= left:
                return {"trials": number, "exhausted": False, "reason": "seconds"}
            if canceled():
                raise Canceled
            index = next((each for each in range(self._script.space_size) if each not in known), None)
            if index is None:
                return {"trials": number, "exhausted": True, "reason": "space"}
            if number == 1 and key in self._script.crashing:
                raise errors.EngineCrashed("relay engine: it was killed by SIGSEGV")
            identifier = None
            # The first proposal is the default.
            if number and offered:
                identifier, index = offered.pop(0)
            known.add(index)
            self._measure(key, index, params, number, on_event, identifier)
        waited = {"queue_seconds": self._script.queue_seconds}
        return {"trials": params["trials"], "exhausted": False, "reason": "trials", **waited}

    def _adopted(self, params: dict[str, Any], known: set[int], on_event: OnEvent) -> list[tuple[int, int]]:
        """Ids and indices of the offered schedules of the space."""
        found: list[tuple[int, int]] = []
        if not params.get("candidates"):
            return found
        for line in Path(params["candidates"]).read_text().splitlines():
            offered = json.loads(line)
            index = json.loads(offered["schedule"])["index"]
            if len(found) == params["adopted"]:
                break
            on_event("candidate", {"id": offered["id"], "status": "checking"})
            if index in self._script.crashing_candidates:
                raise errors.EngineCrashed("relay engine: it was killed by SIGSEGV")
            if not 0 <= index < self._script.space_size:
                on_event("candidate", {"id": offered["id"], "status": "rejected", "message": "not in the space"})
            elif index in known:
                on_event("candidate", {"id": offered["id"], "status": "known"})
            else:
                on_event("candidate", {"id": offered["id"], "status": "accepted"})
                found.append((offered["id"], index))
                known.add(index)
        return found

    def _measure(
        self,
        key: str,
        index: int,
        params: dict[str, Any],
        number: int,
        on_event: OnEvent,
        identifier: int | None = None,
    ) -> None:
        self._script.before_trial(len(self._script.measured))
        if self._script.seconds_per_trial:
            self._script.sleep(self._script.seconds_per_trial)
        failed = key in self._script.failing or index in self._script.failing_schedules
        seconds = 0.1 if index in self._script.slow_schedules else 1e-3 / (1 + index)
        latencies = [] if failed else [seconds * self._script.speed.get(params["tuner"], 1.0)]
        event = {
            "workload_key": key,
            "trial_number": params["first_trial"] + number,
            "schedule": json.dumps(
                {
                    "key": key,
                    "index": index,
                    "config": {"entity": []},
                    "result": [latencies, 0, 0.0, 0.0],
                    "r": [latencies, 0, 0, 0],
                }
            ),
            "schedule_digest": digest_of(f"{key}{index}"),
            "latencies": latencies,
            "error": "build_error" if failed else None,
            "error_message": "it broke" if failed else None,
            "finished_at": time.time(),
            "default": index == 0 and params["tuner"] == "autotvm",
            **({} if identifier is None else {"candidate": identifier}),
            **self._script.trial_details,
        }
        self._script.measured.append((key, event["schedule_digest"]))
        with Path(params["spool"]).open("a") as file:
            file.write(json.dumps(event) + "\n")
        self._script.on_trial(len(self._script.measured))
        on_event("trial", event)


def _measured_before(path: str | None, key: str) -> set[int]:
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()] if path else []
    return {int(line["index"]) for line in lines if line["key"] == key}


def _fastest(path: str | None) -> list[str]:
    """The first line of each workload: candidates come fastest first."""
    lines = Path(path).read_text().splitlines() if path else []
    assert lines or path is None
    first: dict[str, str] = {}
    for line in lines:
        first.setdefault(json.loads(line)["key"], line)
    return list(first.values())


def _chosen(bundle: Path) -> dict[str, int]:
    lines = map(json.loads, (bundle / _CHOSEN).read_text().splitlines())
    return {line["key"]: line["index"] for line in lines}


def _touch(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)
    return str(path)
