"""``records export`` and ``records import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tunesmith import errors
from tunesmith.cli import connecting, options, output

app = typer.Typer(help="Export and import tuning records in TVM's formats.", no_args_is_help=True)

_Tuner = Annotated[str, typer.Option("--tuner", help="Tuner of the records: autotvm, ansor or metaschedule.")]
_Toolchain = Annotated[
    str | None, typer.Option(help="Toolchain, such as relay/tvm-0.19.0/llvm-22; see `workers --json`.")
]
_SHOWN_REFUSALS = 10
_EXPORT_EPILOG = """\b
Examples:
  tunesmith records export --tuner autotvm -o log.json
  tunesmith records export --tuner ansor --target native -o log.json
  tunesmith records export --tuner metaschedule -o database/
"""
_IMPORT_EPILOG = """\b
Examples:
  tunesmith records import log.json --tuner autotvm
  tunesmith records import database/ --tuner metaschedule
"""


@app.command(epilog=_EXPORT_EPILOG)
def export(
    file: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE|DIR", help="File to write, or a folder for MetaSchedule's two files."
        ),
    ],
    tuner: _Tuner,
    target: Annotated[str | None, typer.Option(help="native, or a TVM target, with or without -num-cores=N.")] = None,
    device: Annotated[str | None, typer.Option(help="Device key; see `workers --json`.")] = None,
    toolchain: _Toolchain = None,
    workload: Annotated[str | None, typer.Option(help="Workload key.")] = None,
    job: Annotated[str | None, typer.Option(help="Only records of this job.")] = None,
    valid_only: Annotated[bool, typer.Option("--valid-only", help="Omit failed trials.")] = False,
    as_json: options.Json = False,
) -> None:
    """Export records in the tuner's native format."""
    with connecting.client() as client:
        written = client.export_records(
            file,
            tuner,
            target=target,
            device=device,
            toolchain=toolchain,
            workload=workload,
            job=job,
            valid_only=valid_only,
        )
    size = _bytes(written)
    document = {"path": str(written), "tuner": tuner, "bytes": size}
    output.answer(document, f"{written}  {output.size(size)}", as_json=as_json)


@app.command(name="import", epilog=_IMPORT_EPILOG)
def take(
    file: Annotated[
        Path, typer.Argument(metavar="FILE|DIR", help="A log file, or MetaSchedule's folder or a tar of it.")
    ],
    tuner: _Tuner,
    target: Annotated[
        str | None, typer.Option(help="Reject records of any other target; native is the worker's.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Thread count of records whose target has none.")] = None,
    device: Annotated[
        str | None, typer.Option(help="Key of the device that measured them.  [default: that of the only live worker]")
    ] = None,
    toolchain: _Toolchain = None,
    as_json: options.Json = False,
) -> None:
    """Import records that TVM wrote. Importing a file again changes nothing."""
    with connecting.client() as client:
        report = client.import_records(file, tuner, target=target, threads=threads, device=device, toolchain=toolchain)
    if as_json:
        output.document(report)
    else:
        _show(report)
    if report["refused_count"] and not report["imported"] + report["known_already"]:
        raise errors.InvalidInput(
            f"no record in {file} was imported",
            hint=f"Check that it is a log of {tuner}; the reasons of the first lines are listed above.",
        )


def _show(report: dict[str, Any]) -> None:
    counts = [f"{report['imported']} imported", f"{report['known_already']} already stored"]
    output.line(", ".join([*counts, f"{report['refused_count']} rejected"]))
    for place in report["places"]:
        identity = (place["target"], place["device_key"], place["toolchain"])
        output.note(f"{place['records']} for {'  '.join(identity)}")
    for refusal in report["refused"][:_SHOWN_REFUSALS]:
        where = f"{refusal['file']} " if refusal["file"] else ""
        output.note(f"rejected {where}line {refusal['line']}: {refusal['reason']}")
    more = report["refused_count"] - _SHOWN_REFUSALS
    if more > 0:
        output.note(f"… and {more} more; see --json")


def _bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in (path.iterdir() if path.is_dir() else [path]))
