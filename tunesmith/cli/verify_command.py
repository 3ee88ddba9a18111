"""``verify``: check a bundle that somebody else made before running it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunesmith.cli import options, output

if TYPE_CHECKING:
    from tunesmith.verifying import Checked

_EPILOG = """\b
Examples:
  tunesmith verify best.tar
  tunesmith verify best.tar --digest sha256:9f2c… --json
  tunesmith verify best.tar --model model.onnx
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(verify)


def verify(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle.")],
    digest: Annotated[str | None, typer.Option(metavar="SHA256", help="Digest that the bundle must have.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="ONNX file that it must be compiled from. In a checkout, its outputs are compared too."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Check a bundle from somebody else before running it.

    The digest of every file is compared with the manifest, and the libraries may import and export only what the
    libraries of models need. With --model, the bundle is also run in the sandbox, and its outputs are compared with
    ONNX Runtime's. A bundle is native code: passing proves its form, not that it is harmless.
    """
    from tunesmith import verifying

    checked = verifying.check(bundle, digest=digest, model=model)
    compared = _compare(bundle, model) if model else None
    if model and compared is None:
        output.note("the outputs were not compared with ONNX Runtime's: that needs a checkout")
    if as_json:
        output.document(_document(bundle, checked, compared))
        return
    _tell(checked, compared)


def _compare(bundle: Path, model: Path) -> list[dict[str, Any]] | None:
    """Return the errors of each output; None outside a checkout. Raises InvalidInput and ConfigurationError."""
    from tunesmith.cli import comparing, local

    if not local.is_checkout():
        return None
    return comparing.with_reference(bundle, model)


def _document(bundle: Path, checked: Checked, compared: list[dict[str, Any]] | None) -> dict[str, Any]:
    manifest = checked.manifest
    return {
        "bundle": str(bundle),
        "sha256": checked.sha256,
        "model": {"name": manifest["model_name"], "sha256": manifest["model_digest"]},
        "target": manifest["target"],
        "created_by": manifest["created_by"],
        "runtime": manifest.get("runtime"),
        "files": manifest["files"],
        "libraries": {name: asdict(library) for name, library in checked.libraries.items()},
        "unchecked": list(checked.unchecked),
        "outputs": compared,
    }


def _tell(checked: Checked, compared: list[dict[str, Any]] | None) -> None:
    manifest = checked.manifest
    output.line(f"sha256     {checked.sha256}")
    output.line(f"model      {_printable(manifest['model_name'])}, sha256 {manifest['model_digest']}")
    output.line(f"target     {_printable(manifest['target'])}")
    runtime = manifest.get("runtime")
    if isinstance(runtime, dict):
        facts = [_printable(str(runtime.get(name, ""))) for name in ("name", "version", "model")]
        output.line(f"runtime    {facts[0]} {facts[1]} on {facts[2]}, else the library")
    output.line(f"files      {len(manifest['files'])}, all as in the manifest")
    for name, library in checked.libraries.items():
        output.line(f"{name}: needs {', '.join(library.needed)}; imports {len(library.imports)} known functions")
    if checked.unchecked:
        output.paragraph(f"not looked into: {', '.join(checked.unchecked)}")
    for each in compared or []:
        name, error, limit = _printable(each["output"]), each["max_rel"], each["rtol"]
        output.line(f"output {name}: error {error:.3g} of the largest magnitude, limit {limit:.3g}")
    output.paragraph("It is native code: run it if you would run a program of its author.")


def _printable(text: str) -> str:
    # Control characters could reprogram the terminal.
    return "".join(filter(str.isprintable, text))
