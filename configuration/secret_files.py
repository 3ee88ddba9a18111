"""Values that stand in files, as secrets of Docker and Kubernetes do: ``TUNESMITH_TOKEN_FILE=/run/secrets/token``.

They never get into the environment, which every child process inherits and crash reports show.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from domain import errors

SUFFIX = "_FILE"
_MOST_BYTES = 64 * 1024


def value_of(variable: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """What stands in the file that ``VARIABLE_FILE`` names, without the end of its line; None where that is not set.

    Raises ConfigurationError for a file that cannot be read or holds nothing, and where both are set.
    """
    name = variable + SUFFIX
    path = environment.get(name)
    if not path:
        return None
    if environment.get(variable):
        raise errors.ConfigurationError(f"{variable} and {name} are both set", hint="Set one of them.")
    text = _read(name, Path(path)).rstrip("\r\n")
    if not text.strip():
        raise errors.ConfigurationError(f"the file that {name} names is empty: {path}", hint=f"Write {variable} there.")
    return text


def given(variable: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The variable itself, or what stands in its file; None where neither is set. Raises ConfigurationError."""
    return value_of(variable, environment) or environment.get(variable) or None


def _read(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise errors.ConfigurationError(
            f"the file that {name} names cannot be read: {path}: {error.strerror or error}",
            hint="It must exist, and the user that the process runs as must be allowed to read it.",
        ) from None
    if len(data) > _MOST_BYTES:
        raise errors.ConfigurationError(f"the file that {name} names has more than {_MOST_BYTES} bytes: {path}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise errors.ConfigurationError(f"the file that {name} names is not text in UTF-8: {path}") from None
