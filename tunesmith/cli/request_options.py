"""The options of ``tune``, generated from ``tunesmith.job_draft``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from tunesmith import job_draft
from tunesmith.cli import options
from tunesmith.job_draft import Cli, Option

SECTIONS = (job_draft.BUILD, job_draft.SEARCH, job_draft.MEASURE, job_draft.JOB)
_TEXTS: dict[str, Callable[[Any, str], Any]] = {
    "share": options.share,
    "minutes": options.minutes,
    "names": lambda text, _flag: None if text is None else [name.strip() for name in text.split(",")],
    "shapes": lambda texts, _flag: options.size_choices(texts or []) or None,
    "frequencies": options.frequencies,
    "padding": lambda texts, flag: options.padding(texts or [], flag) or None,
    "labels": lambda texts, _flag: options.labels(texts or []) or None,
}
_REPEATED = ("shapes", "padding", "labels")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options given on the command line, by parameter name; None for those that were not given."""

    values: Mapping[str, Any]

    @property
    def like(self) -> str | None:
        found: str | None = self.values["like"]
        return found

    @property
    def webhook(self) -> str | None:
        found: str | None = self.values["webhook"]
        return found

    @property
    def secret(self) -> str | None:
        """The webhook's secret: the option, else the environment variable."""
        return self.values["webhook_secret"] or os.environ.get("TUNESMITH_WEBHOOK_SECRET") or None

    def request(self) -> dict[str, Any]:
        """Return keyword arguments of ``Client.tune``. Raises BadParameter."""
        found: dict[str, Any] = {}
        for option, cli in _asked():
            value = self.values[_name(option, cli)]
            if cli.text is not None:
                value = _TEXTS[cli.text](value, _flag(option, cli))
            if value is not None:
                *groups, last = option.path.removeprefix("budget.").split(".")
                place = found
                for group in groups:
                    place = place.setdefault(group, {})
                place[last] = value
        _check_rpc(found.get("rpc"))
        _complete_webhook(found, self)
        return found


def parameters() -> Iterator[inspect.Parameter]:
    for section in SECTIONS:
        for option, cli in _asked():
            if cli.section == section:
                yield _parameter(option, cli)


def _asked() -> Iterator[tuple[Option, Cli]]:
    return ((option, option.cli) for option in job_draft.options() if option.cli is not None)


def _parameter(option: Option, cli: Cli) -> inspect.Parameter:
    kind = list[str] if cli.text in _REPEATED else str if cli.text else option.kind
    info = typer.Option(
        _flag(option, cli),
        metavar=cli.metavar,
        help=cli.help,
        autocompletion=_completion(option),
        rich_help_panel=cli.section,
    )
    return inspect.Parameter(
        _name(option, cli), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )


def _flag(option: Option, cli: Cli) -> str:
    return cli.flag or f"--{option.path.rpartition('.')[2].replace('_', '-')}"


def _name(option: Option, cli: Cli) -> str:
    return _flag(option, cli).partition("/")[0].removeprefix("--").replace("-", "_")


def _completion(option: Option) -> Callable[[str], Any] | None:
    if option.path == "like":
        return options.job_ids
    return options.among(option.choices) if option.choices else None


def _check_rpc(rpc: Mapping[str, Any] | None) -> None:
    if rpc is not None and not ("tracker" in rpc and "key" in rpc):
        raise typer.BadParameter("--rpc-tracker HOST:PORT and --rpc-key KEY must be given together")


def _complete_webhook(found: dict[str, Any], asked: Asked) -> None:
    if asked.webhook:
        found["webhook"] = {"url": asked.webhook, **({"secret": asked.secret} if asked.secret else {})}
    elif asked.values["webhook_secret"] is not None:
        raise typer.BadParameter("--webhook-secret needs --webhook URL")
    else:
        found.pop("webhook", None)


class GroupedCommand(TyperCommand):
    """A command whose help has a section for each group of options, and the ungrouped options last."""

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
    """Return ``command`` with its parameter of type ``Asked`` replaced by the options of ``job_draft``."""
    hints = get_type_hints(command, include_extras=True)
    taken: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if hints[parameter.name] is Asked:
            place, asked = parameter.name, list(parameters())
            taken += asked
        else:
            taken.append(parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**values: Any) -> Any:
        given = {one.name: values.pop(one.name) for one in asked}
        return command(**values, **{place: Asked(values=given)})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    return run
