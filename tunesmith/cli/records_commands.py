"""``records export``, ``import``, ``list``, ``invalidate`` and ``delete``."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer

from tunesmith import errors
from tunesmith.cli import connecting, options, output

app = typer.Typer(help="Export, import, list and remove tuning records.", no_args_is_help=True)

_Tuner = Annotated[str, typer.Option("--tuner", help="Tuner of the records: autotvm, ansor or metaschedule.")]
_Toolchain = Annotated[
    str | None, typer.Option(help="Toolchain, such as relay/tvm-0.19.0/llvm-22; see `workers --json`.")
]
_TunerFilter = Annotated[str | None, typer.Option("--tuner", help="autotvm, ansor or metaschedule.")]
_TargetFilter = Annotated[str | None, typer.Option("--target", help="native, or a TVM target.")]
_DeviceFilter = Annotated[str | None, typer.Option("--device", help="Device key; see `workers --json`.")]
_WorkloadFilter = Annotated[str | None, typer.Option("--workload", help="Workload key.")]
_Provenance = Annotated[str | None, typer.Option(help="measured (by a worker) or imported.")]
_State = Annotated[
    str | None,
    typer.Option(help="State of imported records: untried, measured, failed, rejected or invalidated."),
]
_Owner = Annotated[str | None, typer.Option(help="For admins: who imported them.")]
_Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of records; `records list` shows them.")]
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
_LIST_EPILOG = """\b
Examples:
  tunesmith records list --provenance imported
  tunesmith records list --state rejected --json
"""
_INVALIDATE_EPILOG = """\b
Examples:
  tunesmith records invalidate i-12 i-13
  tunesmith records invalidate --tuner ansor
"""
_DELETE_EPILOG = """\b
Examples:
  tunesmith records delete i-12 i-13
  tunesmith records delete --state rejected
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
    provenance: Annotated[
        str | None, typer.Option(help="measured, or imported for records that you imported.  [default: measured]")
    ] = None,
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
            provenance=provenance,
        )
    size = _bytes(written)
    document = {"path": str(written), "tuner": tuner, "provenance": provenance or "measured", "bytes": size}
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
    """Import records that TVM wrote, for your jobs to measure first. Importing a file again changes nothing."""
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


@app.command(name="list", epilog=_LIST_EPILOG)
def list_(
    tuner: _TunerFilter = None,
    target: _TargetFilter = None,
    device: _DeviceFilter = None,
    toolchain: _Toolchain = None,
    workload: _WorkloadFilter = None,
    job: Annotated[str | None, typer.Option(help="Only records of this job.")] = None,
    provenance: _Provenance = None,
    state: _State = None,
    owner: _Owner = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of records to list.")] = 50,
    as_json: options.Json = False,
) -> None:
    """List the records: those that workers measured, then those that you imported."""
    with connecting.client() as client:
        matching = client.records(
            tuner,
            target=target,
            device=device,
            toolchain=toolchain,
            workload=workload,
            job=job,
            provenance=provenance,
            state=state,
            owner=owner,
        )
        found = list(itertools.islice(matching, limit))
    if as_json:
        output.document(found)
        return
    headers = ["ID", "PROVENANCE", "STATE", "LATENCY", "TUNER", "WORKLOAD"]
    output.listing(headers, [_row(each) for each in found], optional=["WORKLOAD", "TUNER"], empty="no records")


@app.command(epilog=_INVALIDATE_EPILOG)
def invalidate(
    ids: _Ids = None,
    tuner: _TunerFilter = None,
    target: _TargetFilter = None,
    device: _DeviceFilter = None,
    toolchain: _Toolchain = None,
    workload: _WorkloadFilter = None,
    owner: _Owner = None,
    as_json: options.Json = False,
) -> None:
    """Withdraw untried imported records, so that no job tries them, even if they are imported again."""
    chosen = _Chosen(tuner=tuner, target=target, device=device, toolchain=toolchain, workload=workload, owner=owner)
    with connecting.client() as client:
        number = client.invalidate_records(id=ids or [], **chosen)
    output.answer({"records": number}, f"{number} invalidated", as_json=as_json)


@app.command(epilog=_DELETE_EPILOG)
def delete(
    ids: _Ids = None,
    tuner: _TunerFilter = None,
    target: _TargetFilter = None,
    device: _DeviceFilter = None,
    toolchain: _Toolchain = None,
    workload: _WorkloadFilter = None,
    state: _State = None,
    owner: _Owner = None,
    as_json: options.Json = False,
) -> None:
    """Delete imported records. Records that a worker measured stay."""
    chosen = _Chosen(tuner=tuner, target=target, device=device, toolchain=toolchain, workload=workload, owner=owner)
    with connecting.client() as client:
        number = client.delete_records(id=ids or [], state=state, **chosen)
    output.answer({"records": number}, f"{number} deleted", as_json=as_json)


class _Chosen(TypedDict):
    tuner: str | None
    target: str | None
    device: str | None
    toolchain: str | None
    workload: str | None
    owner: str | None


def _row(record: dict[str, Any]) -> list[str]:
    source = record["worker"] or f"imported by {record['owner']}"
    latency = "failed" if record["latency"] is None else output.latency(record["latency"])
    claim = f"{latency} claimed" if record["owner"] else latency
    return [record["id"] or "-", source, record["state"] or "-", claim, record["tuner"], record["workload_key"]]


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
