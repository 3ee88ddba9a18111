"""The programs of ``examples/``, built and run with a bundle that an engine compiled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.tuner.engines.runtime.library import test_linking
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import NOTHING_TUNED, Twin, home, manifest
from tuner.engines.runtime.library.plan import Convention
from tuner.host import catalogue, environments
from tuner.host.catalogue import EngineSpec
from tuner.results import bundle

pytestmark = pytest.mark.engine

EXAMPLES = catalogue.ROOT / "examples"
BUILD_TOOLS = EngineSpec(
    name="build-tools", module="cmake", requirements=catalogue.ROOT / "requirements" / "build-tools.txt"
)
WARNINGS = "-Wall -Wextra -Wconversion -Wpedantic -Werror"
EXPECTED = """
import json, sys
import numpy as np
from tunesmith.runtime import InferenceSession
session = InferenceSession(sys.argv[1])
rows, columns = np.arange(16) * 20 // 16, np.arange(16) * 24 // 16
picture = np.fromfile(sys.argv[2], np.uint8)[-20 * 24 * 3:].reshape(20, 24, 3)
image = picture[rows][:, columns].transpose(2, 0, 1)[None].astype(np.float32) / np.float32(255)
image.tofile(sys.argv[3])
scores = [session.run(None, {"image": given})[0].ravel().tolist() for given in (image, np.zeros_like(image))]
print(json.dumps(scores))
"""
SERVICE = """
import json, os, sys
from fastapi.testclient import TestClient
import service
client = TestClient(service.app)
headers = {"Content-Type": "application/octet-stream"}
body = open(sys.argv[1], "rb").read()
assert client.post("/run", content=body[:-4], headers=headers).status_code == 422
print(json.dumps(client.post("/run", content=body, headers=headers).raise_for_status().json()))
"""
Scores = tuple[list[float], list[float]]


@pytest.fixture(scope="module")
def unpacked(relay_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked bundle, beside which it lies as ``b.tar``."""
    folder = tmp_path_factory.mktemp("bundle")
    facts = manifest(relay_twin)
    bundle.write(folder / "b.tar", compiled=relay_twin.untuned, manifest=facts, report=NOTHING_TUNED)
    bundle.open_bundle(folder / "b.tar", folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture(scope="module")
def picture(unpacked: Path) -> Path:
    path = unpacked.with_name("picture.ppm")
    pixels = bytes((31 * place * place + place) % 256 for place in range(20 * 24 * 3))
    path.write_bytes(b"P6\n24 20\n255\n" + pixels)
    return path


@pytest.fixture(scope="module")
def scores(unpacked: Path, picture: Path) -> Scores:
    """Of the picture, whose input is written beside it, and of zeros."""
    library, prepared = unpacked / "libmodel.so", picture.with_suffix(".float32")
    of_picture, of_zeros = json.loads(asking.inside("onnx", EXPECTED, library, picture, prepared))
    return of_picture, of_zeros


@pytest.fixture(scope="module")
def tools() -> dict[str, str]:
    """The environment of a process that finds CMake, Ninja and pkg-config first."""
    environments.install(BUILD_TOOLS, home())
    programs = environments.interpreter(BUILD_TOOLS, home()).parent
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}


def done(*command: str | Path, env: dict[str, str] | None = None) -> str:
    finished = subprocess.run(
        list(map(str, command)), env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-2000:]
    return finished.stdout


def test_cmake_finds_a_bundle(
    unpacked: Path, picture: Path, scores: Scores, tools: dict[str, str], tmp_path: Path
) -> None:
    flags = [f"-DCMAKE_{language}_FLAGS={WARNINGS}" for language in ("C", "CXX")]
    done("cmake", "-G", "Ninja", "-S", EXAMPLES, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={unpacked}", *flags, env=tools)
    done("cmake", "--build", tmp_path, env=tools)
    classes = [line.split() for line in done(tmp_path / "classify", unpacked / "libmodel.so", picture).splitlines()]
    best = sorted(range(5), key=lambda index: -scores[0][index])
    assert [(int(index), float(score)) for index, score in classes] == [
        (index, float(f"{scores[0][index]:.6g}")) for index in best
    ]
    assert [float(line) for line in done(tmp_path / "embedded").splitlines()] == [
        float(f"{score:.6g}") for score in scores[1]
    ]
    refused = subprocess.run(
        [tmp_path / "classify", unpacked / "libmodel.so", "/dev/null"], capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stderr) == (1, "/dev/null is not a binary PPM picture\n")


STATIC = """
#include <stdio.h>
#include "libmodel.h"

int main(void) {
  const tunesmith_api *model = tunesmith_get_api_a1(TUNESMITH_API_VERSION, NULL);
  return !model || puts(model->description->model) < 0;
}
"""
STATIC_PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(program C)
find_package(tunesmith CONFIG REQUIRED)
add_executable(program main.c)
target_link_libraries(program PRIVATE tunesmith::static)
target_link_options(program PRIVATE -static)
"""


def test_cmake_finds_a_static_library(tools: dict[str, str], tmp_path: Path) -> None:
    model = tmp_path / "model"
    test_linking.archived(model, "a1", Convention.PACKED)
    shutil.copy(catalogue.ROOT / "tuner" / "results" / "interface" / "tunesmith-config.cmake", model)
    (tmp_path / "main.c").write_text(STATIC)
    (tmp_path / "CMakeLists.txt").write_text(STATIC_PROJECT)
    built = tmp_path / "built"
    done("cmake", "-G", "Ninja", "-S", tmp_path, "-B", built, f"-DCMAKE_PREFIX_PATH={model}", env=tools)
    done("cmake", "--build", built, env=tools)
    assert done(built / "program") == "a1\n"


def test_pkg_config_finds_a_bundle(unpacked: Path, scores: Scores, tools: dict[str, str], tmp_path: Path) -> None:
    options = done(
        "pkgconf", "--cflags", "--libs", "tunesmith", env={**tools, "PKG_CONFIG_PATH": str(unpacked)}
    ).split()
    done("g++", "-std=c++17", "-o", tmp_path / "embedded", EXAMPLES / "embedded.cpp", *options)
    assert float(done(tmp_path / "embedded").split()[0]) == float(f"{scores[1][0]:.6g}")


def test_the_service_answers(unpacked: Path, picture: Path, scores: Scores, tmp_path: Path) -> None:
    environment = asking.with_numpy_alone(tmp_path / "packages")
    environment["PYTHONPATH"] += f":{EXAMPLES}"
    environment["MODEL"] = str(unpacked.with_name("b.tar"))
    told = done(sys.executable, "-c", SERVICE, picture.with_suffix(".float32"), env=environment)
    assert json.loads(told) == {"scores": [scores[0]]}
