"""How a process says that it cannot start."""

from __future__ import annotations

import sys

from domain import errors

CONFIGURATION_STATUS = 3
NETWORK_STATUS = 4


def refuse(error: errors.TunesmithError) -> int:
    """Tells people what is wrong, and returns the status to exit with: 4 where trying again later may help."""
    sys.stderr.write(f"error[{error.code}]: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
    return NETWORK_STATUS if isinstance(error, errors.Unavailable) else CONFIGURATION_STATUS
