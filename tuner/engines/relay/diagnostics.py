"""What Relay's type checker has to say, as the message of the error that it raises.

TVM prints its diagnostics and raises "one or more error diagnostics were emitted, please check diagnostic render".
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm.ir import diagnostics
from tvm.ir.diagnostics import DiagnosticLevel

_WORST = (DiagnosticLevel.BUG, DiagnosticLevel.ERROR)
_FOLLOWING = "The type inference pass was unable to infer a type"
"""Begins a diagnostic of every expression around one that has an error."""


def install() -> None:
    """Put diagnostics into the errors of this process; a second call changes nothing."""
    diagnostics.override_renderer(_raise)


def _raise(context: Any) -> None:
    messages = [" ".join(str(each.message).split()) for each in context.diagnostics if each.level in _WORST]
    causes = [message for message in messages if not message.startswith(_FOLLOWING)] or messages
    if causes:
        raise tvm.error.DiagnosticError("; ".join(dict.fromkeys(causes)))
