from __future__ import annotations

import threading
import time

from tuner.engines.runtime import environment


def test_settling_waits_for_threads_that_still_compute() -> None:
    ends = time.monotonic() + 0.3

    def spin() -> None:
        while time.monotonic() < ends:
            pass

    spinner = threading.Thread(target=spin)
    spinner.start()
    environment.settle()
    assert time.monotonic() >= ends - 0.05
    spinner.join()


def test_an_idle_process_settles_at_once() -> None:
    started = time.monotonic()
    environment.settle()
    assert time.monotonic() - started < 1.0
