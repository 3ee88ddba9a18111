"""The command tree, and what errors look like."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

import tunesmith
from tunesmith import errors
from tunesmith.cli import (
    engine_commands,
    job_commands,
    model_commands,
    output,
    pull_command,
    records_commands,
    run_command,
    service_commands,
    token_commands,
    tune_command,
)

USAGE_EXIT = 2
INTERRUPTED_EXIT = 130

_WIDEST_HELP = 80
_EPILOG = """\b
First steps:
  tunesmith tune net.onnx --dry-run              what tuning would do
  tunesmith tune net.onnx --seconds 300          tune, and show the gain
  tunesmith pull --model net.onnx -o net.tar     get the best bundle
  tunesmith run net.tar --print-time             run it here
\b
TUNESMITH_URL and TUNESMITH_TOKEN name the server; without them it is the
one that `tunesmith serve` started here. Status: 0 ok, 1 the job failed,
2 usage, 3 configuration, 4 network, 5 refused, 130 Ctrl-C.
"""
app = typer.Typer(
    name="tunesmith",
    help="Tune neural networks for the machines they run on.",
    epilog=_EPILOG,
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    # Without a width of its own, help never gets narrower than 50 columns.
    context_settings={"help_option_names": ["-h", "--help"], "terminal_width": min(output.width(), _WIDEST_HELP)},
)


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version of this client.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --version: print JSON for programs.")] = False,
) -> None:
    if version:
        known = tunesmith.__version__
        output.document({"version": known}) if as_json else output.line(f"tunesmith {known}")
        raise typer.Exit
    if as_json:
        context.fail("--json belongs behind a command's name, or to --version.")
    if context.invoked_subcommand is None:
        context.fail("Missing command.")


model_commands.register(app)
tune_command.register(app)
job_commands.register(app)
pull_command.register(app)
run_command.register(app)
service_commands.register(app)
token_commands.register(app)
app.add_typer(engine_commands.app, name="engines")
app.add_typer(records_commands.app, name="records")
app.add_typer(model_commands.rm, name="rm")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 ok, 1 the job failed, 2 usage, 3 configuration, 4 network, 5 validation, 130 Ctrl-C."""
    _leave_out_the_command_of_httpx()
    try:
        result = app(
            args=list(arguments) if arguments is not None else None, standalone_mode=False, prog_name="tunesmith"
        )
        sys.stdout.flush()
    except errors.TunesmithError as error:
        output.error(error.code, error.message, _hint(error, arguments))
        return error.exit_status
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED_EXIT
    except BrokenPipeError:
        # The reader of a pipe, such as head, has seen enough. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except typer.Exit as exit_:
        return exit_.exit_code
    except TyperException as error:
        return _usage(error, arguments)
    return result if isinstance(result, int) else 0


def _leave_out_the_command_of_httpx() -> None:
    """httpx imports a command of its own, and rich and click for it, wherever these are installed.

    That takes longer than httpx itself, and httpx does without where the import fails, which None makes it do.
    """
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]


def _usage(error: TyperException, arguments: Sequence[str] | None) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        output.note(error.format_message())
    else:
        command = context.command_path if context else _named(arguments)
        output.error("usage", error.format_message(), f"See {command} --help.")
    return USAGE_EXIT


def _hint(error: errors.TunesmithError, arguments: Sequence[str] | None) -> str | None:
    """The server names its own pages, which say nothing of options, and headers, which nobody sets here."""
    hint = error.hint or ""
    if hint.startswith("See /docs"):
        return f"See {_named(arguments)} --help."
    if isinstance(error, errors.Unauthorized) and hint.startswith("Send "):
        return errors.Unauthorized.default_hint
    return error.hint


def _named(arguments: Sequence[str] | None) -> str:
    """The command that the arguments begin with."""
    command: object = typer.main.get_command(app)
    words = ["tunesmith"]
    for word in sys.argv[1:] if arguments is None else arguments:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        words.append(word)
    return " ".join(words)
