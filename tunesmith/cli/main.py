"""The command tree, error messages and exit statuses."""

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
    check_command,
    data_commands,
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
    verify_command,
)

USAGE_EXIT = 2
INTERRUPTED_EXIT = 130

_WIDEST_HELP = 80
_EPILOG = """\b
First steps:
  tunesmith tune net.onnx --dry-run              show the plan
  tunesmith tune net.onnx --seconds 300          tune, and show the speedup
  tunesmith pull --model net.onnx -o net.tar     download the best bundle
  tunesmith run net.tar --print-time             run and time it here
\b
TUNESMITH_URL and TUNESMITH_TOKEN select the server. The default is the one
that `tunesmith serve` started on this machine.
\b
Exit status: 0 success, 1 job failed, 2 usage error, 3 configuration error,
4 network error, 5 request rejected, 130 interrupted.
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
    # Without an explicit width, help is never narrower than 50 columns.
    context_settings={"help_option_names": ["-h", "--help"], "terminal_width": min(output.width(), _WIDEST_HELP)},
)


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version of this client.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --version: print JSON.")] = False,
) -> None:
    if version:
        known = tunesmith.__version__
        output.document({"version": known}) if as_json else output.line(f"tunesmith {known}")
        raise typer.Exit
    if as_json:
        context.fail("--json goes after a command, or with --version.")
    if context.invoked_subcommand is None:
        context.fail("Missing command.")


model_commands.register(app)
tune_command.register(app)
job_commands.register(app)
pull_command.register(app)
run_command.register(app)
verify_command.register(app)
check_command.register(app)
service_commands.register(app)
token_commands.register(app)
app.add_typer(engine_commands.app, name="engines")
app.add_typer(records_commands.app, name="records")
app.add_typer(data_commands.app, name="data")
app.add_typer(model_commands.rm, name="rm")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    0 success, 1 job failed, 2 usage, 3 configuration, 4 network, 5 request rejected, 130 Ctrl-C.
    """
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
        # The reader of the pipe, such as head, has exited. Python would report an error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except typer.Exit as exit_:
        return exit_.exit_code
    except TyperException as error:
        return _usage(error, arguments)
    return result if isinstance(result, int) else 0


def _leave_out_the_command_of_httpx() -> None:
    """Keep httpx from importing its own command line, and rich and click with it.

    That import takes longer than httpx itself. httpx tolerates its failure, and None in ``sys.modules`` makes it fail.
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
    """Return a hint for the command line: the server's hints refer to its own pages and to HTTP headers."""
    hint = error.hint or ""
    if hint.startswith("See /docs"):
        return f"See {_named(arguments)} --help."
    if isinstance(error, errors.Unauthorized) and hint.startswith("Send "):
        return errors.Unauthorized.default_hint
    return error.hint


def _named(arguments: Sequence[str] | None) -> str:
    """Return the command that the arguments begin with."""
    command: object = typer.main.get_command(app)
    words = ["tunesmith"]
    for word in sys.argv[1:] if arguments is None else arguments:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        words.append(word)
    return " ".join(words)
