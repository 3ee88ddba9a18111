"""``records export`` and ``records import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tunesmith import errors
from tunesmith.cli import connecting, options, output

app = typer.Typer(help="Records of trials, in the formats of TVM's tuners.", no_args_is_help=True)

_Tuner = Annotated[str, typer.Option("--tuner", help="autotvm, ansor or metaschedule.")]
_Toolchain = Annotated[str | None, typer.Option(help="Such as relay/tvm-0.19.0/llvm-22; see `workers --json`.")]
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
        Path, typer.Option("-o", "--output", metavar="FILE|DIR", help="MetaSchedule's two files go into a folder.")
    ],
    tuner: _Tuner,
    target: Annotated[
        str | None, typer.Option(help="native, or as TVM writes it, with or without -num-cores=N.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="A device key; see `workers --json`.")] = None,
    toolchain: _Toolchain = None,
    workload: Annotated[str | None, typer.Option(help="One workload's key.")] = None,
    job: Annotated[str | None, typer.Option(help="What one job measured.")] = None,
    valid_only: Annotated[bool, typer.Option("--valid-only", help="Omit failed trials.")] = False,
    as_json: options.Json = False,
) -> None:
    """Write records as TVM's own readers take them."""
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
    file: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A log; MetaSchedule's folder or a tar of it.")],
    tuner: _Tuner,
    target: Annotated[
        str | None, typer.Option(help="Refuse lines of any other target; native is the worker's.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="For lines whose target has no thread count.")] = None,
    device: Annotated[
        str | None, typer.Option(help="Key of the device that measured them; by default the only living worker's.")
    ] = None,
    toolchain: _Toolchain = None,
    as_json: options.Json = False,
) -> None:
    """Store records that TVM wrote, here or elsewhere; doing it twice changes nothing."""
    with connecting.client() as client:
        report = client.import_records(file, tuner, target=target, threads=threads, device=device, toolchain=toolchain)
    if as_json:
        output.document(report)
    else:
        _show(report)
    if report["refused_count"] and not report["imported"] + report["known_already"]:
        raise errors.InvalidInput(
            f"nothing in {file} was taken", hint=f"Is it of {tuner}? The first lines' reasons are told one by one."
        )


def _show(report: dict[str, Any]) -> None:
    counts = [f"{report['imported']} imported", f"{report['known_already']} known already"]
    output.line(", ".join([*counts, f"{report['refused_count']} refused"]))
    for place in report["places"]:
        identity = (place["target"], place["device_key"], place["toolchain"])
        output.note(f"{place['records']} of {'  '.join(identity)}")
    for refusal in report["refused"][:_SHOWN_REFUSALS]:
        where = f"{refusal['file']} " if refusal["file"] else ""
        output.note(f"refused {where}line {refusal['line']}: {refusal['reason']}")
    more = report["refused_count"] - _SHOWN_REFUSALS
    if more > 0:
        output.note(f"… and {more} more; see --json")


def _bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in (path.iterdir() if path.is_dir() else [path]))
