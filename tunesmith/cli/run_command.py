"""``run``: a downloaded bundle, on this machine, without a server."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tunesmith.cli import local, options, output, reports


class FillMode(StrEnum):
    RANDOM = "random"
    ZEROS = "zeros"
    ONES = "ones"


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, as `pull` writes it.")],
    inputs: Annotated[Path | None, typer.Option(help=".npz file with one array an input.")] = None,
    to: Annotated[Path | None, typer.Option("--output", "-o", help=".npz file to write the outputs to.")] = None,
    print_time: Annotated[bool, typer.Option("--print-time", help="Measure and print execution times.")] = False,
    repeat: Annotated[int, typer.Option(min=1, help="Samples to measure.")] = 10,
    number: Annotated[int, typer.Option(min=1, help="Runs a sample; their mean counts.")] = 1,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads.  [default: those it was tuned for]")] = None,
    fill_mode: Annotated[FillMode, typer.Option(help="What inputs hold without --inputs.")] = FillMode.RANDOM,
    as_json: options.Json = False,
) -> None:
    """Run a bundle in the engine that compiled it: plain TVM, no server needed."""
    measured = repeat if print_time or as_json else 0
    result = local.run_bundle(
        bundle, inputs=inputs, outputs=to, threads=threads, repeat=measured, number=number, fill=fill_mode.value
    )
    if as_json:
        output.document({"bundle": str(bundle), "outputs": result.outputs, "samples": result.samples})
        return
    for spec in result.outputs:
        output.line(f"{spec['name']}  {spec['dtype']}  {output.shape(spec['shape'])}")
    if result.samples:
        output.line("Execution time summary:")
        for text in reports.statistics(result.statistics()):
            output.line(f"  {text}")
    if to:
        output.note(f"outputs written to {to}")
