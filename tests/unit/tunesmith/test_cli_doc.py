"""docs/reference/cli.md is held to the commands, and the commands to docs/reference/cli.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.tunesmith.test_help import COMMANDS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()
EVERYWHERE = {"--help", "-h", "--install-completion", "--show-completion", "--version"}


def test_every_command_is_described() -> None:
    second = "create|list|revoke|install|export|import|invalidate|delete|model|artifact|copy|add|rm"
    told = set(re.findall(rf"`tunesmith ([a-z]+(?: (?:{second}))?)[` ]", PAGE))
    told |= {f"engines {name}" for name in ("list", "doctor") if f"`engines {name}`" in PAGE}
    assert sorted(set(COMMANDS) - told) == []
    assert sorted(told - set(COMMANDS) - {"COMMAND"}) == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_is_described_where_its_command_is(name: str) -> None:
    section = _section(name)
    options = {option for each in COMMANDS[name].params for option in (*each.opts, *each.secondary_opts)}
    long = {option for option in options if option.startswith("--")} - EVERYWHERE
    assert sorted(option for option in long if not re.search(rf"`{option}[ `]|`[^`]*[ `]{option}[ `]", section)) == []


def test_no_option_is_invented() -> None:
    options = {
        option for each in COMMANDS.values() for one in each.params for option in (*one.opts, *one.secondary_opts)
    }
    told = {
        option for code in re.findall(r"`([^`\n]+)`", PAGE) for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", code)
    }
    assert sorted(told - options - EVERYWHERE - {"-mcpu"}) == []


def _section(name: str) -> str:
    """The part under the heading that has the command."""
    parts = re.split(r"^##+ ", PAGE, flags=re.MULTILINE)
    found = [part for part in parts if re.search(rf"`(?:tunesmith )?{name}[` ]", part.partition("\n")[2] or part)]
    headed = [part for part in parts if part.startswith(f"`tunesmith {name}`")]
    assert found or headed, name
    return "".join(headed or found)
