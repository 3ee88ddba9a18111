"""``tunesmith run`` where only the client is installed: what bundles may do to it, and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.tuner.engines import asking
from tests.unit.tuner.test_bundle import MANIFEST, REPORT
from tuner.results import bundle

Run = Callable[..., subprocess.CompletedProcess[str]]
LIBRARY = """
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) { CODE }
"""
MORE = "mmap(0, 2UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)"
HANGS = """
  FILE *file = fopen(getenv("PROCESSES"), "w");
  int child = fork();
  if (child) fprintf(file, "%d %d", getpid(), child), fclose(file);
  for (;;) pause();
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a bundle whose library has that code in its constructor."""
    client = asking.with_numpy_alone(tmp_path / "packages")

    def run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
        compiled = tmp_path / "compiled"
        compiled.mkdir()
        (compiled / "tunesmith.h").write_bytes(b"{}")
        (tmp_path / "library.c").write_text(LIBRARY.replace("CODE", code))
        command = ["cc", "-shared", "-fPIC", "-o", compiled / "libmodel.so", tmp_path / "library.c"]
        subprocess.run(command, check=True, timeout=60)
        bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=replace(MANIFEST, files={}), report=REPORT)
        return subprocess.run(
            [sys.executable, "-m", "tunesmith", "run", "b.tar", "--output", "y.npz", *options],
            cwd=tmp_path,
            env={**client, "PROCESSES": str(tmp_path / "processes")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("*(volatile int *)0 = 1;", "SIGSEGV (Segmentation fault)"),
        ("abort();", "SIGABRT (Aborted)"),
        ("_exit(7);", "exit status 7"),
        ("_exit(0);", "exit status 0"),
        (f"_exit({MORE} == MAP_FAILED ? 5 : 6);", "exit status 5"),
        ("struct rlimit core; getrlimit(RLIMIT_CORE, &core); _exit(core.rlim_max ? 6 : 5);", "exit status 5"),
    ],
)
def test_a_bundle_may_end_its_process_only(run: Run, tmp_path: Path, code: str, ending: str) -> None:
    done = run(code, "--memory-mb", "1024")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error[bundle_crashed]: the bundle ended the process that ran it: {ending}\n"
        "hint: Check the bundle: tunesmith verify BUNDLE.\n"
    )
    assert not (tmp_path / "y.npz").exists()


def test_what_a_bundle_prints_is_no_result(run: Run) -> None:
    done = run('puts("{}"); fflush(stdout);', "--json")
    assert (done.returncode, done.stdout) == (5, "")
    assert "error[invalid_bundle]: " in done.stderr
    assert "it is no library of a tuned model" in done.stderr


def test_a_bundle_that_hangs_is_ended_with_what_it_started(run: Run, tmp_path: Path) -> None:
    started = time.monotonic()
    done = run(HANGS, "--max-seconds", "2")
    assert time.monotonic() - started < 20
    assert (done.returncode, done.stderr) == (
        5,
        "error[run_time_limit]: the bundle ran for more than 2 s\nhint: Allow more with --max-seconds.\n",
    )
    for process in map(int, (tmp_path / "processes").read_text().split()):
        with pytest.raises(ProcessLookupError):
            _wait(process)


def _wait(process: int) -> None:
    """Raises ProcessLookupError once a process has ended, which may take a moment."""
    for _ in range(100):
        os.kill(process, 0)
        if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            raise ProcessLookupError
        time.sleep(0.05)
