"""Libraries of several sizes, joined from real builds, against ONNX Runtime and against the library of each size."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.binaries import assert_old_glibc_alone, symbols
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

BATCHES, SEQUENCES = (1, 4, 8), (16, 32)
SIZES = tuple(itertools.product(BATCHES, SEQUENCES))
DIMENSIONS = [
    {"name": "batch", "splits": True, "pads": False},
    {"name": "sequence", "splits": False, "pads": True},
]
DIGEST = "5e" * 32
Join = Callable[..., dict[str, Any]]


def seconds(batch: int, sequence: int) -> float:
    """A batch of 8 takes twice as long as one of 1."""
    return (6 + batch) * sequence * 1e-6


def described(
    place: Twin | EngineSession, folders: dict[tuple[int, ...], Path], out: Path, **more: Any
) -> dict[str, Any]:
    parts = [
        {
            "name": f"batch={size[0]}, sequence={size[1]}",
            "path": str(folder / "model.part"),
            "values": list(size),
            "seconds": seconds(*size),
        }
        for size, folder in folders.items()
    ]
    return {
        "parts": parts,
        "dimensions": DIMENSIONS,
        "inputs": {"ids": ["batch", "sequence"], "mask": ["batch", "sequence"]},
        "padding": {"ids": 0, "mask": 0},
        "target": place.target if isinstance(place, Twin) else "llvm",
        "model_digest": DIGEST,
        "format": "shared",
        "out_dir": str(out),
        **more,
    }


def join(twin: Twin, folders: dict[tuple[int, ...], Path], out: Path, **more: Any) -> dict[str, Any]:
    return twin.session.request("join", described(twin, folders, out, **more), timeout=200)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    path.write_bytes(models.masked_sentences())
    return path


def build(
    twin: Twin, reference: EngineSession, folder: Path, size: tuple[int, int], content: bytes | None = None, **more: Any
) -> Path:
    """The folder of a part's build."""
    folder.mkdir()
    shapes = more.pop("shapes", {"ids": list(size), "mask": list(size)})
    prepared, _ = asking.prepare(reference, content or models.masked_sentences(), folder, **shapes)
    params = {**twin.place, "model": str(prepared), "records": None, "out_dir": str(folder / "out"), **more}
    answer = twin.session.request("compile", {**params, "part": True}, timeout=200)
    assert {"libmodel.so", "model.part"} <= set(answer["files"])
    return folder / "out"


def all_sizes(twin: Twin, reference: EngineSession, folder: Path) -> dict[tuple[int, ...], Path]:
    return {size: build(twin, reference, folder / f"{size[0]}x{size[1]}", size, threads=2) for size in SIZES}


@pytest.fixture(scope="module")
def relay_parts(
    relay_twin: Twin, reference: EngineSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[int, ...], Path]:
    return all_sizes(relay_twin, reference, tmp_path_factory.mktemp("relay-parts"))


@pytest.fixture(scope="module")
def relax_parts(
    relax_twin: Twin, reference: EngineSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[int, ...], Path]:
    return all_sizes(relax_twin, reference, tmp_path_factory.mktemp("relax-parts"))


class Joined:
    def __init__(self, folder: Path, parts: dict[tuple[int, ...], Path], answer: dict[str, Any]) -> None:
        self.folder, self.parts, self.answer = folder, parts, answer
        self.library = folder / "libmodel.so"


@pytest.fixture(scope="module", params=["relay", "relax", "mixed"])
def joined(request: pytest.FixtureRequest, relay_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> Joined:
    """Joined libraries; of the mixed one, every other part is the other engine's."""
    twin: Twin = request.getfixturevalue("relax_twin") if request.param == "relax" else relay_twin
    if request.param == "mixed":
        both = [request.getfixturevalue(f"{name}_parts") for name in ("relay", "relax")]
        parts = {size: both[place % 2][size] for place, size in enumerate(SIZES)}
    else:
        parts = request.getfixturevalue(f"{request.param}_parts")
    folder = tmp_path_factory.mktemp(f"joined-{request.param}")
    return Joined(folder, parts, join(twin, parts, folder))


def test_what_is_joined_is_a_library_like_others(joined: Joined) -> None:
    answer = joined.answer
    assert answer["files"] == ["libmodel.so", "tunesmith.h"]
    assert answer["exact"] == []
    assert [line.split()[-1] for line in symbols(joined.library, "--defined-only")] == ["tunesmith_get_api"]
    assert_old_glibc_alone(joined.library)
    # Sizes differ in nothing that the layout of this model's weights depends on.
    assert answer["weight_bytes"] < answer["separate_weight_bytes"]
    assert joined.library.stat().st_size <= answer["weight_bytes"] + 300_000 * len(SIZES)


COMPARE = """
import itertools, json, sys
import numpy as np
import onnxruntime
from tunesmith.runtime import InferenceSession, NoSuchSize
library, model, parts, threads = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
expected = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
rng = np.random.default_rng(0)
session = InferenceSession(library, threads=int(threads))
other = InferenceSession(library, threads=1)

def feed(rows, length, unaligned=False):
    made = {"ids": rng.integers(0, 40, (rows, length)), "mask": (rng.random((rows, length)) < 0.7).astype("float32")}
    made["mask"][:, 0] = 1
    if unaligned:
        made = {name: np.concatenate([each.ravel()[:1], each.ravel()])[1:].reshape(each.shape) for name, each in made.items()}
    return made

def check(rows, length, **more):
    given = feed(rows, length, **more)
    found = session.run(None, given)
    wanted = expected.run(None, given)
    for one, two in zip(found, wanted, strict=True):
        assert one.shape == two.shape and one.dtype == two.dtype, (rows, length, one.shape, two.shape)
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5, err_msg=f"{rows}x{length}")
    again = other.run(["sentences"], given)
    assert again[0].tobytes() == found[1].tobytes()
    mine = {"tokens": np.full_like(found[0], 7)}
    outputs = session.run(None, given, out=mine)
    assert outputs[0] is mine["tokens"] and mine["tokens"].tobytes() == found[0].tobytes()
    try:
        session.run(None, given, out={"tokens": np.empty((1, *found[0].shape), "float32")})
    except ValueError:
        return
    raise AssertionError("an array of another shape")

assert [each.shape for each in session.get_inputs()] == [["batch", "sequence"]] * 2
assert [each.shape for each in session.get_outputs()] == [["batch", "sequence", 12], ["batch", 12]]
sizes = [(each["batch"], each["sequence"]) for each in session.sizes]
for (rows, length), path in json.loads(parts):
    given = feed(rows, length)
    alone = InferenceSession(path, threads=int(threads)).run(None, given)
    assert (rows, length) in sizes
    assert [each.tobytes() for each in session.run(None, given)] == [each.tobytes() for each in alone]
    assert {name for name, _ in session.profile(given)}
for rows in range(1, 21):
    check(rows, 32)
for length in range(1, 33):
    check(4, length)
for rows, length in itertools.product((1, 2, 5, 9, 12, 27), (3, 16, 17, 31)):
    check(rows, length, unaligned=rows % 2 == 1)
check(300, 20)
given = feed(7, 19)
assert min(session.time(given, number=2, repeat=3)) > 0
for refused, kind, text in (
    (feed(2, 33), NoSuchSize, "no entry point serves batch=2, sequence=33 (batch can be split, sequence can be padded);"
     " the sizes are batch=1, sequence=16; batch=1, sequence=32;"),
    ({"ids": np.zeros((0, 16), "int64"), "mask": np.zeros((0, 16), "float32")},
     NoSuchSize, "no entry point serves batch=0, sequence=16 "),
    ({**feed(2, 8), "mask": np.zeros((2, 9), "float32")}, Exception,
     "input mask has size 9 on axis 1, but ids has 8 there: both are sequence"),
):
    try:
        session.run(None, refused)
    except kind as error:
        assert str(error).startswith(text), error
    else:
        raise AssertionError(text)
try:
    session.profile(given)
except ValueError as error:
    assert "only sizes of entry points can be profiled, not batch=7, sequence=19" in str(error), error
else:
    raise AssertionError
with InferenceSession(library, threads=1, otherwise=model) as both:
    long = feed(3, 40)
    for one, two in zip(both.run(None, long), expected.run(None, long)):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    assert min(both.time(long)) > 0
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_every_size_between_the_entry_points_is_served(joined: Joined, model: Path, threads: int) -> None:
    parts = json.dumps([[list(size), str(folder / "libmodel.so")] for size, folder in joined.parts.items()])
    asking.inside("onnx", COMPARE, joined.library, model, parts, str(threads))
