"""``engines install``, ``list`` and ``doctor``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tunesmith import connection, errors
from tunesmith.cli import local, options, output

app = typer.Typer(help="Manage the environments of TVM, ONNX Runtime and OpenVINO.", no_args_is_help=True)

_Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME…]", help="relay, relax, onnx or openvino; by default all but openvino, if that is not installed."
    ),
]


_INSTALL_EPILOG = """\b
Examples:
  tunesmith engines install
  tunesmith engines install relay
  tunesmith engines install openvino
"""
_DOCTOR_EPILOG = """\b
Examples:
  tunesmith engines doctor
  tunesmith engines doctor relax --json
"""


@app.command(epilog=_INSTALL_EPILOG)
def install(names: _Names = None) -> None:
    """Install missing engine environments."""
    with local.translated():
        from tuner.host import environments

        messages: list[str] = []

        def say(text: str) -> None:
            messages.append(text)
            output.note(text)

        for spec in _specs(names):
            environments.install(spec, connection.home(), on_progress=say)
        if messages:
            output.note("restart running workers to make them see the new engines")


@app.command(name="list")
def listing(as_json: options.Json = False) -> None:
    """List the engines and their interpreters."""
    with local.translated():
        from domain.errors import EngineNotInstalled
        from tuner.host import catalogue, environments

        found = []
        for spec in [catalogue.get(name) for name in sorted(catalogue.ENGINES | catalogue.OPTIONAL)]:
            try:
                python = str(environments.interpreter(spec, connection.home()))
            except EngineNotInstalled:
                python = None
            found.append({"name": spec.name, "installed": python is not None, "python": python})
    if as_json:
        output.document(found)
        return
    rows = [[str(each["name"]), "yes" if each["installed"] else "no", str(each["python"] or "-")] for each in found]
    output.listing(["ENGINE", "INSTALLED", "PYTHON"], rows, optional=["PYTHON"], empty="no engines")


@app.command(epilog=_DOCTOR_EPILOG)
def doctor(names: _Names = None, as_json: options.Json = False) -> None:
    """Start each engine and report problems. Exit status 3 if one is broken."""
    import dataclasses

    with local.translated():
        from tuner.host import environments

        found = [environments.doctor(spec, connection.home()) for spec in _specs(names)]
    if as_json:
        output.document([{**dataclasses.asdict(each), "python": each.python and str(each.python)} for each in found])
    else:
        for health in found:
            tools = " ".join(f"{name} {version}" for name, version in health.toolchain.items() if name != "engine")
            seconds = f"  (starts in {health.start_seconds:.1f} s)" if health.start_seconds else ""
            output.line(f"{health.name:<10} {'ok' if not health.problems else 'broken'}  {tools}{seconds}")
            for problem in health.problems:
                output.line(f"{'':<10} {problem}")
    broken = [health.name for health in found if health.problems]
    if broken:
        raise errors.ConfigurationError(
            f"{' and '.join(broken)} cannot be used",
            code="engine_broken",
            hint=f"Reinstall: tunesmith engines install {' '.join(broken)}.",
        )


def _specs(names: list[str] | None) -> list[Any]:
    from tuner.host import catalogue, environments

    return [catalogue.get(name) for name in names] if names else environments.expected(connection.home())
