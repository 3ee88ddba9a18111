"""Parts of the search that can be switched off, to measure what each of them gains."""

from __future__ import annotations

from enum import StrEnum


class SearchPart(StrEnum):
    IN_NETWORK = "in-network"  # records of costly operators are chosen by their times in the network
    MIXING = "mixing"  # operators without templates of AutoTVM get Ansor's records in its builds
    HAND_OVER = "hand-over"  # strategies in reserve start when the others expect nothing more


def checked(text: str) -> str:
    """Return ``text``. Raises ValueError unless it is a comma-separated list of parts."""
    parts_of(text)
    return text


def parts_of(text: str) -> frozenset[SearchPart]:
    """Return the parts of a comma-separated list. Raises ValueError."""
    names = [name for part in text.split(",") if (name := part.strip())]
    unknown = [name for name in names if name not in set(SearchPart)]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a part of the search; these are: {', '.join(SearchPart)}")
    return frozenset(map(SearchPart, names))
