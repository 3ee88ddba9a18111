"""``run``: execute a downloaded bundle on this machine, without a server."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunesmith.cli import options, output, reports

if TYPE_CHECKING:
    from tunesmith.cli import local
    from tunesmith.cli.arrays import Answer, Array

    Tops = dict[str, list[list[Answer]]]

_EPILOG = """\b
Examples:
  tunesmith run best.tar --inputs x.npz --output y.npz
  tunesmith run best.tar --print-time --repeat 100
  tunesmith run best.tar --inputs cat.npz --labels imagenet.txt
  tunesmith run best.tar --fill-mode ones --dump-outputs scores
"""
_TOP = 5
_MOST_ROWS = 10
_SHOWN_VALUES = 12


class FillMode(StrEnum):
    RANDOM = "random"
    ZEROS = "zeros"
    ONES = "ones"


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(run)


def run(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle downloaded with `pull`.")],
    inputs: Annotated[Path | None, typer.Option(help=".npz file with one array per input.")] = None,
    to: Annotated[Path | None, typer.Option("--output", "-o", help=".npz file to write the outputs to.")] = None,
    dump_outputs: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="Only these outputs: written with -o, otherwise printed."),
    ] = None,
    print_time: Annotated[bool, typer.Option("--print-time", help="Measure and print execution times.")] = False,
    repeat: Annotated[int, typer.Option(min=1, help="Number of samples to measure.")] = 10,
    number: Annotated[
        int | None,
        typer.Option(min=1, help="Runs per sample, which is their mean.  [default: as many as take 20 ms]"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of threads.  [default: the number it was tuned for]")
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            metavar="library|onnxruntime|openvino",
            help="What runs it.  [default: the fastest in the benchmark that is installed]",
        ),
    ] = None,
    fill_mode: Annotated[FillMode, typer.Option(help="Input values without --inputs.")] = FillMode.RANDOM,
    top_k: Annotated[
        int | None, typer.Option("--top-k", "--print-top", min=1, help="Print the classes with the largest values.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Class names, one per line or JSON.  [implies --top-k 5]")
    ] = None,
    memory_mb: Annotated[
        int | None,
        typer.Option(min=1024, help="Memory limit, in MiB.  [default: by the sizes in the bundle's manifest]"),
    ] = None,
    max_seconds: Annotated[float, typer.Option(min=1, help="Time limit, in seconds, with all samples.")] = 600.0,
    as_json: options.Json = False,
) -> None:
    """Run a bundle on this machine. No server is needed.

    The bundle runs in the engine that compiled it, sandboxed, or, where only the client is installed, in a process of
    its own by numpy and its library. If ONNX Runtime or OpenVINO was faster in the benchmark, that runs it where it is
    installed.
    """
    import tempfile

    from tunesmith.cli import arrays, local

    if runtime not in (None, "library", "onnxruntime", "openvino"):
        raise typer.BadParameter(f"--runtime must be library, onnxruntime or openvino, not {runtime!r}")
    names = [name.strip() for name in (dump_outputs or "").split(",") if name.strip()]
    known = arrays.labels(labels) if labels else None
    shown = (top_k or _TOP) if known else top_k
    with tempfile.TemporaryDirectory(prefix="tunesmith-outputs-") as folder:
        written = Path(folder) / "outputs.npz" if names or shown else to
        samples = repeat if print_time or as_json else 0
        result = local.run_bundle(
            bundle, inputs=inputs, outputs=written, threads=threads,
            repeat=samples, number=number, fill=fill_mode.value, named=names,
            memory_mb=memory_mb, max_seconds=max_seconds, runtime=runtime,
        )  # fmt: skip
        specs = [spec for spec in result.outputs if spec["name"] in names] if names else result.outputs
        chosen = [spec["name"] for spec in specs]
        tops = _tops(written, chosen if names else chosen[:1], shown, known) if written and shown else {}
        values = [arrays.read(written, name) for name in names] if written and names and to is None else []
        if to and written != to and written:
            arrays.copy(written, chosen, to)
    if as_json:
        output.document(_document(bundle, specs, result, tops, values))
        return
    _tell(result, specs, tops, values, to)


def _tops(path: Path, names: list[str], most: int, known: list[str] | None) -> Tops:
    from tunesmith.cli import arrays

    return {name: arrays.top(arrays.read(path, name), most, known) for name in names}


def _document(
    bundle: Path, specs: list[dict[str, Any]], result: local.RunResult, tops: Tops, values: list[Array]
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "bundle": str(bundle),
        "outputs": specs,
        "samples": result.samples,
        "number": result.number,
        "threads": result.threads,
        "runtime": result.runtime,
        "reason": result.reason,
        "published": asdict(result.published) if result.published else None,
    }
    if tops:
        document["top"] = {name: [[asdict(answer) for answer in row] for row in rows] for name, rows in tops.items()}
    if values:
        document["values"] = {array.name: list(array.values) for array in values}
    return document


def _tell(
    result: local.RunResult, specs: list[dict[str, Any]], tops: Tops, values: list[Array], to: Path | None
) -> None:
    _show(specs, tops, values)
    output.note(f"ran with {result.runtime}{f': {result.reason}' if result.reason else ''}")
    _show_times(result)
    if to:
        output.note(f"outputs written to {to}")


def _show(specs: list[dict[str, Any]], tops: Tops, values: list[Array]) -> None:
    held = {array.name: array for array in values}
    for spec in specs:
        name = spec["name"]
        output.line(f"{name}  {spec['dtype']}  {output.shape(spec['shape'])}")
        if name in held:
            output.line(f"  {_abbreviated(held[name])}")
        for number, row in enumerate(tops.get(name, [])[:_MOST_ROWS]):
            if len(tops[name]) > 1:
                output.line(f"  row {number}")
            _answers(row)
        hidden = len(tops.get(name, [])) - _MOST_ROWS
        if hidden > 0:
            output.line(f"  … and {hidden} more rows; see --json")


def _show_times(result: local.RunResult) -> None:
    from tunesmith.cli import local

    if not result.samples:
        return
    output.line("Execution time summary:")
    for text in reports.statistics(result.statistics()):
        output.line(f"  {text}")
    if result.published:
        for sentence in local.compared(result.published, result.samples, result.threads):
            output.paragraph(sentence)


def _answers(row: list[Answer]) -> None:
    lines = output.table(
        ["class", "value", "label"],
        [[str(answer.index), f"{answer.value:.6g}", answer.label or ""] for answer in row],
    )
    for text in lines if any(answer.label for answer in row) else [line.removesuffix("label") for line in lines]:
        output.line(f"  {text.rstrip()}")


def _abbreviated(array: Array) -> str:
    texts = [f"{value:.6g}" for value in array.values[:_SHOWN_VALUES]]
    more = len(array.values) - _SHOWN_VALUES
    return "[" + ", ".join(texts) + (f", … {more} more; use -o FILE for all]" if more > 0 else "]")
