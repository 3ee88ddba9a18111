"""``python -m tests.support.tuner.misbehaving_engine``: an engine of the standard library only that fails on demand.

The environment variable ``TUNESMITH_TEST_START`` chooses how it starts; its methods are ways to answer, or not to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.tuner import walking
from tuner.engines.protocol import messages, serving
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import Emitter, EngineFailure


def _echo(params: Json, _: Emitter) -> Json:
    return {"echo": params, "pid": os.getpid(), "threads": os.environ.get("THREADS"), "cwd": str(Path.cwd())}


def _count(params: Json, emitter: Emitter) -> Json:
    for number in range(params["events"]):
        emitter.emit("progress", {"number": number})
    return {"events": params["events"]}


def _refuse(params: Json, _: Emitter) -> Json:
    raise EngineFailure(
        "unsupported_operators", "no such operator", hint="change it", details={"operators": {"Foo": 2}}
    )


def _fail(params: Json, _: Emitter) -> Json:
    raise ZeroDivisionError("a bug")


def _exit(params: Json, _: Emitter) -> Json:
    os.write(2, b"last words\n")
    os._exit(params["status"])


def _die(params: Json, _: Emitter) -> Json:
    os.kill(os.getpid(), params["signal"])
    time.sleep(60)
    return {}


def _sleep(params: Json, _: Emitter) -> Json:
    time.sleep(params["seconds"])
    return {"slept": params["seconds"]}


def _allocate(params: Json, _: Emitter) -> Json:
    return {"allocated": len(bytearray(params["bytes"]))}


def _freeze(params: Json, _: Emitter) -> Json:
    os.kill(os.getpid(), signal.SIGSTOP)
    return {}


def _write(params: Json, emitter: Emitter) -> Json:
    emitter._stream.write(params["text"].encode() * params.get("times", 1))
    emitter._stream.flush()
    time.sleep(60)
    return {}


def _hang_up(params: Json, emitter: Emitter) -> Json:
    os.close(emitter._stream.fileno())
    time.sleep(60)
    return {}


def _have_children(params: Json, _: Emitter) -> Json:
    """Three kinds: one of this group, one that ignores SIGTERM, one that leaves for a session of its own."""
    sleep = "import time; time.sleep(600)"
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {sleep}"
    children = [
        subprocess.Popen([sys.executable, "-c", sleep]),
        subprocess.Popen([sys.executable, "-c", deaf]),
        subprocess.Popen([sys.executable, "-c", sleep], start_new_session=True),
    ]
    return {"pids": [child.pid for child in children], "engine": os.getpid()}


def _read_standard_input(params: Json, _: Emitter) -> Json:
    return {"text": sys.stdin.read()}


def _chat(params: Json, _: Emitter) -> Json:
    os.write(1, b'{"event":"result","id":1,"data":{}}\n')
    return {"written": True}


def _walk(params: Json, _: Emitter) -> Json:
    return walking.changed(params["roots"])


HANDLERS: dict[str, serving.Handler] = {
    "echo": _echo,
    "count": _count,
    "refuse": _refuse,
    "fail": _fail,
    "exit": _exit,
    "die": _die,
    "sleep": _sleep,
    "allocate": _allocate,
    "freeze": _freeze,
    "write": _write,
    "hang_up": _hang_up,
    "have_children": _have_children,
    "read_standard_input": _read_standard_input,
    "chat": _chat,
    "walk": _walk,
}


def _start() -> int:
    start = os.environ.get("TUNESMITH_TEST_START", "well")
    if start == "crash":
        raise SystemExit("cannot import tvm")
    if start == "mute":
        time.sleep(600)
    if start == "foreign":
        events = os.fdopen(int(sys.argv[2]), "wb")
        events.write(b'{"event":"hello","data":{"protocol":99}}\n')
        events.flush()
        time.sleep(600)
    if start == "rude":
        events = os.fdopen(int(sys.argv[2]), "wb")
        events.write(messages.encode_event(messages.Event(kind="progress", request=1)))
        events.flush()
        time.sleep(600)
    serving.HEARTBEAT_SECONDS = 0.1
    return serving.serve(HANDLERS, lambda: {"engine": "misbehaving", "toolchain": {}, "methods": sorted(HANDLERS)})


if __name__ == "__main__":
    sys.exit(_start())
