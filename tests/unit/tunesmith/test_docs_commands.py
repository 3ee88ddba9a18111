"""Every command line that a page shows is one that the command line takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.tunesmith.test_help import COMMANDS

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "docs").rglob("*.yml"))]
_COMMAND = re.compile(r"(?:(?<![\w/.\"'-])tunesmith|\./run cli)((?: [^\s`|;#)]+)+)")
_NOT_OURS = re.compile(r"git clone|from tunesmith import")
_GLOBAL = {"--help", "--install-completion", "--show-completion", "--version"}
_WORD = re.compile(r"[a-z]+")


def shown(page: Path) -> list[list[str]]:
    """Words of each command line in code, fenced or in line; a backslash goes on in the next line."""
    text = page.read_text().replace("\\\n", " ")
    code = re.findall(r"```.*?\n(.*?)```|`([^`\n]+)`", text, re.DOTALL) if page.suffix == ".md" else [(text, "")]
    lines = [re.sub(r" +", " ", line) for block in code for line in "".join(block).splitlines()]
    return [match.split() for line in lines if not _NOT_OURS.search(line) for match in _COMMAND.findall(line)]


@pytest.mark.parametrize("page", [page for page in PAGES if shown(page)], ids=lambda page: page.name)
def test_what_a_page_shows_exists(page: Path) -> None:
    for words in shown(page):
        if not _WORD.fullmatch(words[0]):
            assert words[0] in _GLOBAL or words[0].isupper(), words
            continue
        name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
        assert name in COMMANDS, words
        options = {option for each in COMMANDS[name].params for option in (*each.opts, *each.secondary_opts)}
        used = {word.split("=")[0] for word in words if re.match(r"--?[a-z][\w-]*(=|$)", word)}
        assert used - options - _GLOBAL - {"-mcpu", "-mtriple", "-arch"} == set(), words


def test_many_are_shown() -> None:
    assert sum(len(shown(page)) for page in PAGES) > 80
