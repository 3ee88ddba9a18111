"""``python -m tuner.native --event-fd N``: read native record files in a process with limits."""

from __future__ import annotations

import sys
from pathlib import Path

from domain import errors
from domain.jobs import Tuner
from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import Emitter, EngineFailure
from tuner.native import reading


def main() -> int:
    return serving.serve({"read": _read}, lambda: {"engine": "records"})


def _read(params: Json, emitter: Emitter) -> Json:
    try:
        with Path(params["path"]).open("rb") as file:
            for message in reading.messages(file, Tuner(params["tuner"])):
                emitter.emit("batch", message)
    except errors.InvalidRequest as error:
        raise EngineFailure(error.code, error.message, hint=error.hint) from error
    return {}


if __name__ == "__main__":
    sys.exit(main())
