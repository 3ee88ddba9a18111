"""Commands with many options, which ``--help`` shows section by section."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from typer.core import TyperCommand

from tunesmith.cli import request_options
from tunesmith.cli.request_options import Asked


class GroupedCommand(TyperCommand):
    """Writes a section of help for each group; options of none come last."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            entry = parameter.get_help_record(ctx)
            if entry is not None:
                sections.setdefault(_section(parameter), []).append(entry)
        for name in sorted(sections, key=lambda name: (name == _OPTIONS, name != _ARGUMENTS)):
            with formatter.section(name):
                formatter.write_dl(sections[name])


_ARGUMENTS, _OPTIONS = "Arguments", "Options"


def _section(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _ARGUMENTS
    return getattr(parameter, "rich_help_panel", None) or _OPTIONS


def flattened(command: Callable[..., Any]) -> Callable[..., Any]:
    """``command`` with the options of ``job_draft`` in place of its parameter of type ``Asked``."""
    hints = get_type_hints(command, include_extras=True)
    taken: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if hints[parameter.name] is Asked:
            place, asked = parameter.name, list(request_options.parameters())
            taken += asked
        else:
            taken.append(parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**values: Any) -> Any:
        said = {one.name: values.pop(one.name) for one in asked}
        return command(**values, **{place: Asked(values=said)})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    return run
