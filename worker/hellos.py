"""What an installed engine says about itself, kept so that a worker need not start it only to ask."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

from domain import errors
from tuner import catalogue, environments, hostinfo
from tuner.engines.protocol import plugins
from worker import paths
from worker.engines import EngineSource, Surroundings

_log = logging.getLogger(__name__)


def ask(name: str, home: Path, engines: EngineSource) -> dict[str, Any] | None:
    """The engine's hello; None, and a line in the log, when it does not start.

    Good for showing what a worker has; a job asks the engine that it runs on.
    """
    try:
        cached = paths.hello_cache(home) / f"{name}-{_key(name, home)}.json"
        if cached.is_file():
            hello: dict[str, Any] = json.loads(cached.read_text())
            return hello
        engine = engines.start(name, Surroundings(log=home / "logs" / "engines.log"))
        hello = engine.hello
        engine.close()
        _keep(cached, hello)
    except errors.EngineError as error:
        _log.warning("the %s engine cannot be used: %s", name, error.message)
        return None
    return hello


def _keep(cached: Path, hello: dict[str, Any]) -> None:
    cached.parent.mkdir(parents=True, exist_ok=True)
    partial = cached.with_suffix(".partial")
    partial.write_text(json.dumps(hello))
    partial.replace(cached)


def _key(name: str, home: Path) -> str:
    """Changes with the environment, the plugins to load, the engine's code and the machine."""
    spec = catalogue.get(name)
    python = environments.interpreter(spec, home)
    packages = python.parent.parent / "lib"
    changed = [path.stat().st_mtime_ns for path in [python, *sorted(packages.glob("*/site-packages"))] if path.exists()]
    code = catalogue.ROOT / "tuner" / "engines" / name / "__main__.py"
    facts = [str(python), os.environ.get(plugins.VARIABLE), *changed, code.stat().st_mtime_ns, hostinfo.device().key]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
