"""Errors at the start of a process."""

from __future__ import annotations

import sys

from domain import errors

CONFIGURATION_STATUS = 3
NETWORK_STATUS = 4


def refuse(error: errors.TunesmithError) -> int:
    """Print the error and return the exit status: 4 if a retry may help."""
    sys.stderr.write(f"error[{error.code}]: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
    return NETWORK_STATUS if isinstance(error, errors.Unavailable) else CONFIGURATION_STATUS
