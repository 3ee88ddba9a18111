"""Commands with many options: options come in groups, each a dataclass, and ``--help`` shows them group by group."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints

from typer.core import TyperCommand
from typer.models import OptionInfo


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
    """``command`` with the fields of every dataclass among its parameters in that parameter's place.

    The first line of a dataclass's docstring names its group.
    """
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if isinstance(hint, type) and is_dataclass(hint):
            groups[parameter.name] = hint
            parameters += _parameters(hint)
        else:
            parameters.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**values: Any) -> Any:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return command(**values, **made)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _parameters(group: type) -> list[inspect.Parameter]:
    panel = (group.__doc__ or "").splitlines()[0].rstrip(".")
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=_in_panel(hints[field.name], panel),
        )
        for field in fields(group)
    ]


def _in_panel(hint: Any, panel: str) -> Any:
    kind, info = get_args(hint)
    placed: OptionInfo = copy.copy(info)
    placed.rich_help_panel = panel
    return Annotated[kind, placed]
