"""The driver's limit of threads: affinity masks, and quotas of both versions of cgroups in files that tests write."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tuner.engines.runtime.library import linking

EIGHT_CPUS = """
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include "cpu.h"
int sched_getaffinity(pid_t thread, size_t bytes, cpu_set_t *mask) {
  (void)thread, (void)bytes;
  CPU_ZERO(mask);
  for (size_t cpu = 0; cpu < 8; ++cpu) CPU_SET(cpu, mask);
  return 0;
}
int main(void) { return !printf("%d", cpu_allowed()); }
"""
GROUPS_2 = "0::/pods/model\n"
GROUPS_1 = "3:cpuset:/\n2:cpu,cpuacct:/pods/model\n1:name=systemd:/\n"
HYBRID = "4:memory:/pods\n1:cpu:/pods\n0::/pods\n"
V1, V2 = "cpu/pods/model", "pods/model"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program that takes this folder's files for those of a machine with eight CPUs."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "main.c").write_text(EIGHT_CPUS)
    options = ("-std=c11", "-O1", f'-DROOT="{folder}"', "-I", linking.DRIVER)
    command = ["gcc", *options, folder / "main.c", linking.DRIVER / "cpu.c", "-o", folder / "allowed"]
    subprocess.run(list(map(str, command)), check=True, timeout=60)
    return folder


@pytest.mark.parametrize(
    ("groups", "files", "allowed"),
    [
        (None, {}, 8),
        (GROUPS_2, {}, 8),
        (GROUPS_2, {f"{V2}/cpu.max": "max 100000\n"}, 8),
        (GROUPS_2, {f"{V2}/cpu.max": "200000 100000\n"}, 2),
        (GROUPS_2, {f"{V2}/cpu.max": "200001 100000\n"}, 3),
        (GROUPS_2, {f"{V2}/cpu.max": "5000 100000\n"}, 1),
        (GROUPS_2, {f"{V2}/cpu.max": "99999999999 1000\n"}, 8),
        (GROUPS_2, {f"{V2}/cpu.max": "200000 100000\n", "pods/cpu.max": "100000 100000\n"}, 1),
        # A container's view: the group is named from outside, and its files are at the top.
        (GROUPS_2, {"cpu.max": "300000 100000\n"}, 3),
        (GROUPS_2, {f"{V2}/cpu.max": "200000\n"}, 8),
        (GROUPS_2, {f"{V2}/cpu.max": "200000 0\n"}, 8),
        (GROUPS_2, {f"{V2}/cpu.max": ""}, 8),
        (GROUPS_1, {}, 8),
        (GROUPS_1, {f"{V1}/cpu.cfs_quota_us": "-1\n", f"{V1}/cpu.cfs_period_us": "100000\n"}, 8),
        (GROUPS_1, {f"{V1}/cpu.cfs_quota_us": "250000\n", f"{V1}/cpu.cfs_period_us": "100000\n"}, 3),
        (GROUPS_1, {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "50000\n"}, 1),
        (GROUPS_1, {f"{V1}/cpu.cfs_quota_us": "250000\n"}, 8),
        (HYBRID, {"cpu/pods/cpu.cfs_quota_us": "40000\n", "cpu/pods/cpu.cfs_period_us": "10000\n"}, 4),
        ("nonsense\n1:\n:\n", {"cpu.max": "100000 100000\n"}, 8),
    ],
)
def test_threads_are_no_more_than_the_quota_of_any_group(
    machine: Path, groups: str | None, files: dict[str, str], allowed: int
) -> None:
    contents = {f"sys/fs/cgroup/{name}": content for name, content in files.items()}
    if groups is not None:
        contents["proc/self/cgroup"] = groups
    for name, content in contents.items():
        (machine / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / name).write_text(content)
    try:
        done = subprocess.run([machine / "allowed"], capture_output=True, text=True, check=True, timeout=20)
    finally:
        for name in contents:
            (machine / name).unlink()
    assert int(done.stdout) == allowed
