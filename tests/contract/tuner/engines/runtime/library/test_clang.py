"""The C code as clang sees it: no warnings, and its format."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.contract.tuner.engines.runtime.library.test_linking import WARNINGS, plan
from tests.support.tuner.engines.fixtures import home
from tuner.engines.runtime.library import linking, memory, operators, source
from tuner.engines.runtime.library.plan import Convention
from tuner.host import catalogue, environments
from tuner.host.catalogue import EngineSpec

pytestmark = pytest.mark.engine

CLANG = EngineSpec(name="clang", module="clang_tidy", requirements=catalogue.ROOT / "requirements" / "clang.txt")
OPTIONS = tuple(each for each in WARNINGS if each != "-Werror")


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of clang's programs."""
    environments.install(CLANG, home())
    return environments.interpreter(CLANG, home()).parent


@pytest.mark.parametrize("more", ["-DWEIGHTS_OUTSIDE", "-DTUNESMITH_STATIC", "-DONE_SIZE=1"])
def test_clang_has_no_warnings(programs: Path, tmp_path: Path, more: str) -> None:
    made = plan(Convention.FFI)
    packed = source.weights(made.constants)
    facts = source.Facts(model="", toolchain="t", target="x", threads=1, features=("avx2",))
    outside = source.WeightsFile(name=linking.WEIGHTS, digest=packed.digest())
    entry = source.Entry(name="main", plan=made, memory=memory.lay_out(made, 1), offsets=packed.offsets)
    (tmp_path / "entry_0.c").write_text(source.entry(0, entry))
    (tmp_path / "model.c").write_text(source.model([entry], packed.size, facts, None, outside))
    generated = (tmp_path / "model.c", tmp_path / "entry_0.c")
    files = [*sorted(linking.DRIVER.glob("*.c")), operators.SOURCE, *generated]
    checks = ("--quiet", "--allow-no-checks", "--checks=-*,clang-diagnostic-*", "--warnings-as-errors=*")
    command = [programs / "clang-tidy", *checks, *files, "--", *OPTIONS, more, "-I", linking.DRIVER]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_c_is_formatted_as_the_file_at_the_top_says(programs: Path) -> None:
    root = catalogue.ROOT
    patterns = ("*.c", "*.h", "*.cpp", "*.hpp")
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=root, capture_output=True, text=True, check=True)
    files = listed.stdout.split()
    assert len(files) > 20
    command = [programs / "clang-format", "--dry-run", "--Werror", *files]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
