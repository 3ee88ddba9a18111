"""Libraries of several sizes, joined from real builds, against ONNX Runtime and against the library of each size."""

from __future__ import annotations

import io
import itertools
import json
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from domain.models import TensorSpec
from domain.sizes import Size
from tests.support import models
from tests.support.binaries import assert_old_glibc_alone, symbols
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import NOTHING_TUNED, Twin, manifest
from tuner.host.session import EngineSession
from tuner.results import bundle, wheels

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


def described(twin: Twin, folders: dict[tuple[int, ...], Path], out: Path, **more: Any) -> dict[str, Any]:
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
        "target": twin.target,
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
    twin: Twin, reference: EngineSession, folder: Path, content: bytes, shapes: dict[str, list[int]], **more: Any
) -> Path:
    """The folder of a part's build."""
    folder.mkdir()
    prepared, _ = asking.prepare(reference, content, folder, **shapes)
    answer = asking.build(twin.session, twin.place, folder / "out", model=str(prepared), part=True, **more)
    assert {"libmodel.so", "model.part"} <= set(answer["files"])
    return folder / "out"


def build_sentences(twin: Twin, reference: EngineSession, folder: Path, size: tuple[int, int], **more: Any) -> Path:
    shapes = {"ids": list(size), "mask": list(size)}
    return build(twin, reference, folder, models.masked_sentences(), shapes, **more)


def all_sizes(twin: Twin, reference: EngineSession, folder: Path) -> dict[tuple[int, ...], Path]:
    return {size: build_sentences(twin, reference, folder / f"{size[0]}x{size[1]}", size, threads=2) for size in SIZES}


def join_batches(
    parts: list[tuple[int, Twin, float]],
    reference: EngineSession,
    content: bytes,
    shape: dict[str, list[int]],
    folder: Path,
) -> dict[str, Any]:
    """Join builds for batches, each by a twin, in ``folder / "joined"``; ``shape`` is that of a row of the input."""
    built = []
    for batch, twin, seconds in parts:
        shapes = {name: [batch, *row] for name, row in shape.items()}
        path = build(twin, reference, folder / str(batch), content, shapes) / "model.part"
        built.append({"name": f"batch={batch}", "path": str(path), "values": [batch], "seconds": seconds})
    inputs = {name: ["batch", *[None] * len(row)] for name, row in shape.items()}
    more = {"parts": built, "dimensions": DIMENSIONS[:1], "inputs": inputs, "padding": {}}
    return join(twin, {}, folder / "joined", **more)


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
import itertools, json, os, sys
import numpy as np
import onnxruntime
from tunesmith.runtime import InferenceSession, LoadError, NoSuchSize
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
        shifted = {name: np.concatenate([each.ravel()[:1], each.ravel()])[1:] for name, each in made.items()}
        made = {name: each.reshape(rows, length) for name, each in shifted.items()}
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
    child = os.fork()
    if not child:
        again = [*both.run(None, given), *both.run(None, long)]
        os._exit(0 if again[3].shape == (3, 12) else 1)
    assert os.waitpid(child, 0)[1] == 0
[(first, path), *_] = json.loads(parts)
with InferenceSession(path, otherwise=model) as one:
    assert one.sizes == [] and one.get_inputs()[0].shape == first
    np.testing.assert_allclose(one.run(None, long)[1], expected.run(None, long)[1], rtol=1e-4, atol=1e-5)
for other, text in ((path, "ONNX Runtime cannot load"), (None, "onnxruntime, which otherwise= needs, cannot be ")):
    if other is None:
        sys.modules["onnxruntime"] = None
    try:
        InferenceSession(library, otherwise=other or model)
    except LoadError as error:
        assert str(error).startswith(text), error
    else:
        raise AssertionError(text)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_every_size_between_the_entry_points_is_served(joined: Joined, model: Path, threads: int) -> None:
    parts = json.dumps([[list(size), str(folder / "libmodel.so")] for size, folder in joined.parts.items()])
    asking.inside("onnx", COMPARE, joined.library, model, parts, str(threads))


IN_ONNX_RUNTIME = """
import sys, threading
import numpy as np
import onnxruntime
from tunesmith.runtime import InferenceSession
folder, library = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.register_custom_ops_library(f"{folder}/libtunesmith_ort.so")
session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
assert [each.shape for each in session.get_inputs()] == [["batch", "sequence"]] * 2
assert [each.shape for each in session.get_outputs()] == [["batch", "sequence", 12], ["batch", 12]]
expected = InferenceSession(library)
rng = np.random.default_rng(0)
feeds = []
for rows, length in ((1, 16), (8, 32), (3, 16), (5, 7), (21, 31)):
    feeds.append({"ids": rng.integers(0, 40, (rows, length)), "mask": np.ones((rows, length), "float32")})
wanted = [[each.tobytes() for each in expected.run(None, feed)] for feed in feeds]
wrong = []
def check():
    for _ in range(20):
        for feed, outputs in zip(feeds, wanted):
            found = session.run(None, feed)
            if [each.tobytes() for each in found] != outputs or found[0].shape[:2] != feed["ids"].shape:
                wrong.append(feed)
threads = [threading.Thread(target=check) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not wrong, wrong[0]
try:
    session.run(None, {"ids": np.zeros((2, 40), "int64"), "mask": np.ones((2, 40), "float32")})
except Exception as error:
    assert "no entry point serves batch=2, sequence=40 (batch can be split, " in str(error), error
else:
    raise AssertionError
"""


def test_onnx_runtime_runs_several_sizes(
    relay_twin: Twin, relay_parts: dict[tuple[int, ...], Path], tmp_path: Path
) -> None:
    answer = join(relay_twin, relay_parts, tmp_path, format="onnx")
    assert answer["files"] == ["libmodel.so", "tunesmith.h", "model.onnx", "libtunesmith_ort.so"]
    asking.inside("onnx", IN_ONNX_RUNTIME, tmp_path, tmp_path / "libmodel.so")


IN_A_WHEEL = """
import sys
import numpy as np
import sentences
from tunesmith.runtime import InferenceSession
feed = {"ids": np.arange(60).reshape(3, 20) % 40, "mask": np.ones((3, 20), "float32")}
with InferenceSession(sys.argv[1]) as session:
    expected = session.run(None, feed)
found = sentences.run(feed)
assert [found[name].tobytes() for name in ("tokens", "sentences")] == [each.tobytes() for each in expected]
assert len(sentences.session().sizes) == 6
try:
    sentences.run({"ids": np.zeros((1, 99), "int64"), "mask": np.ones((1, 99), "float32")})
except sentences.NoSuchSize as error:
    print(error)
"""


def test_a_wheel_has_several_sizes(relax_twin: Twin, relax_parts: dict[tuple[int, ...], Path], tmp_path: Path) -> None:
    join(relax_twin, relax_parts, tmp_path / "out", format="wheel")
    symbolic = ("batch", "sequence")
    facts = manifest(
        relax_twin, model_digest=DIGEST, model_name="sentences.onnx", threads=2, device_key="x86_64/any/t2",
        inputs=(TensorSpec(name="ids", dtype="int64", shape=symbolic),),
        outputs=(TensorSpec(name="sentences", dtype="float32", shape=("batch", 12)),),
        format="wheel",
    )  # fmt: skip
    wheel = tmp_path / "out" / wheels.write(tmp_path / "out", facts)
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    script = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n{IN_A_WHEEL}"
    told = asking.inside("onnx", script, tmp_path / "out" / "libmodel.so")
    assert told.startswith("no entry point serves batch=1, sequence=99")


@pytest.mark.parametrize("fill", ["random", "ones"])
def test_the_client_alone_fills_the_inputs_of_the_first_size(
    relay_twin: Twin, relay_parts: dict[tuple[int, ...], Path], tmp_path: Path, fill: str
) -> None:
    join(relay_twin, relay_parts, tmp_path / "out")
    dtypes = {"ids": "int64", "mask": "float32"}
    facts = manifest(
        relay_twin, model_digest=DIGEST,
        inputs=tuple(TensorSpec(name=name, dtype=dtypes[name], shape=("batch", "sequence")) for name in dtypes),
        outputs=(TensorSpec(name="sentences", dtype="float32", shape=("batch", 12)),),
        sizes=tuple(
            Size(
                name=f"batch={size[0]}, sequence={size[1]}", values=dict(zip(("batch", "sequence"), size, strict=True)),
                input_shapes=dict.fromkeys(dtypes, size), share=1 / len(SIZES),
            )
            for size in SIZES
        ),
    )  # fmt: skip
    bundle.write(tmp_path / "b.tar", compiled=tmp_path / "out", manifest=facts, report=NOTHING_TUNED)
    done = subprocess.run(
        [sys.executable, "-m", "tunesmith", "run", "b.tar", "--fill-mode", fill, "--json"],
        cwd=tmp_path,
        env=asking.with_numpy_alone(tmp_path / "packages"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [output["shape"] for output in json.loads(done.stdout)["outputs"]] == [[1, 16, 12], [1, 12]]


STATIC = r"""
#include <stdio.h>
#include "a/libmodel.h"
#include "b/libmodel.h"

static int run(const tunesmith_api *model) {
  enum { ROWS = 5, LENGTH = 9 };
  static int64_t ids[ROWS][LENGTH];
  static float mask[ROWS][LENGTH], tokens[ROWS][LENGTH][12], sentences[ROWS][12];
  const tunesmith_options options = {TUNESMITH_ALL_ENTRIES, 0, 0, 0};
  const int64_t shape[] = {ROWS, LENGTH}, *shapes[] = {shape, shape};
  tunesmith_session *session;
  if (!model || model->create(&options, &session)) return 1;
  for (int row = 0; row < ROWS; ++row)
    for (int place = 0; place < LENGTH; ++place) {
      ids[row][place] = (row * 7 + place) % 40;
      mask[row][place] = 1;
    }
  const tunesmith_input inputs[] = {{ids, sizeof ids}, {mask, sizeof mask}};
  const tunesmith_output outputs[] = {{tokens, sizeof tokens}, {sentences, sizeof sentences}};
  const int status = model->run_shapes(session, inputs, shapes, 2, outputs, 2);
  if (status) fprintf(stderr, "%s\n", model->error());
  fwrite(sentences, 1, sizeof sentences, stdout);
  model->close(session);
  return status;
}

int main(void) {
  return run(tunesmith_get_api_aaaaaaaaaaaaaaaa(2, NULL)) || run(tunesmith_get_api_bbbbbbbbbbbbbbbb(2, NULL));
}
"""
AS_STATIC = """
import sys
import numpy as np
from tunesmith.runtime import InferenceSession
feed = {"ids": (np.arange(5)[:, None] * 7 + np.arange(9)) % 40, "mask": np.ones((5, 9), "float32")}
with InferenceSession(sys.argv[1]) as session:
    expected = session.run(["sentences"], feed)[0]
for found in np.fromfile(sys.argv[2], "float32").reshape(2, 5, 12):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
"""


def test_a_static_program_has_two_models_of_several_sizes(
    relay_twin: Twin,
    relax_twin: Twin,
    relay_parts: dict[tuple[int, ...], Path],
    relax_parts: dict[tuple[int, ...], Path],
    tmp_path: Path,
) -> None:
    for twin, parts, letter in ((relay_twin, relay_parts, "a"), (relax_twin, relax_parts, "b")):
        answer = join(twin, parts, tmp_path / letter, format="static", model_digest=letter * 64)
        assert answer["files"] == ["libmodel.so", "tunesmith.h", "libmodel.a", "libmodel.h"]
    (tmp_path / "main.c").write_text(STATIC)
    archives = [tmp_path / letter / "libmodel.a" for letter in "ab"]
    warnings = ("-std=c11", "-Wall", "-Werror")
    command = ["gcc", *warnings, "-static", tmp_path / "main.c", *archives, "-lm", "-lpthread", "-o", tmp_path / "main"]
    subprocess.run(list(map(str, command)), check=True, timeout=60)
    found = subprocess.run([tmp_path / "main"], check=True, capture_output=True, timeout=60).stdout
    (tmp_path / "found").write_bytes(found)
    asking.inside("onnx", AS_STATIC, tmp_path / "a" / "libmodel.so", tmp_path / "found")


BATCHES_OF_PICTURES = """
import sys
from pathlib import Path
import numpy as np
from tunesmith.runtime import InferenceSession, loading
library, model = sys.argv[1:]

def memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024

images = np.ones((8, 3, 128, 128), "float32")
before, session = memory(), InferenceSession(library, threads=1)
for rows in (1, 2, 8, 1):
    session.run(None, {"image": images[:rows]})
taken = memory() - before
description = loading.load(library).description.contents
arenas = [description.entries[place].arena_bytes for place in range(description.entry_count)]
assert len(arenas) == 3 and max(arenas) > 4e6, arenas
taken -= max(arenas) + description.weight_bytes
# Modules and the library's code take 2.5 MB, whatever the sizes; arenas of their own would take as much again.
assert taken < 3.5e6, (taken, arenas)

import onnxruntime
expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
assert session.get_inputs()[0].shape == ["batch", 3, 128, 128]
for rows in range(1, 24):
    image = np.random.default_rng(rows).random((rows, 3, 128, 128), "float32")
    [found], [wanted] = session.run(None, {"image": image}), expected.run(None, {"image": image})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
"""


def test_batches_of_pictures_share_weights_and_one_arena(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(models.small_network())
    parts = [(batch, twin, float(batch)) for batch in (1, 2, 8)]
    answer = join_batches(parts, reference, models.small_network(), {"image": [3, 128, 128]}, tmp_path)
    assert answer["exact"] == []
    assert answer["weight_bytes"] <= answer["separate_weight_bytes"]
    asking.inside("onnx", BATCHES_OF_PICTURES, tmp_path / "joined" / "libmodel.so", tmp_path / "model.onnx")


SORTED = """
import sys
import numpy as np
from tunesmith.runtime import InferenceSession
session = InferenceSession(sys.argv[1])
for rows in range(1, 20):
    x = np.random.default_rng(rows).permutation(rows * 40).reshape(rows, 40).astype("float32")
    y, places = session.run(None, {"x": x})
    expected = np.argsort(-x, axis=1)[:, :5]
    assert (places == expected).all() and (y == np.take_along_axis(x, expected, 1)).all()
print(session.metadata["toolchain"])
"""


def test_entry_points_of_both_engines_sort_by_functions_of_the_driver(
    relay_twin: Twin, relax_twin: Twin, reference: EngineSession, tmp_path: Path
) -> None:
    parts = [(batch, twin, 1.0) for batch, twin in ((1, relay_twin), (2, relax_twin), (4, relay_twin), (6, relax_twin))]
    join_batches(parts, reference, models.best_columns(), {"x": [40]}, tmp_path)
    told = asking.inside("onnx", SORTED, tmp_path / "joined" / "libmodel.so").strip()
    assert [each.partition(",")[0] for each in told.split("; ")] == ["relay", "relax"]


def test_engines_run_several_sizes(joined: Joined, relay_twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    specs = [
        {"name": "ids", "dtype": "int64", "shape": [3, 20]},
        {"name": "mask", "dtype": "float32", "shape": [3, 20]},
    ]
    inputs = asking.make_inputs(reference, specs, tmp_path)
    params = {"bundle": str(joined.folder), "inputs": str(inputs), "outputs": None, "threads": 1}
    outputs = relay_twin.session.request("run", params, timeout=60)["outputs"]
    assert [each["shape"] for each in outputs] == [[3, 20, 12], [3, 12]]
    samples = relay_twin.session.request("time", {**params, "number": 2, "repeat": 3}, timeout=60)["samples"]
    assert len(samples) == 3
    # Random inputs have the sizes of the first entry point.
    outputs = relay_twin.session.request("run", {**params, "inputs": None}, timeout=60)["outputs"]
    assert outputs[0]["shape"] == [1, 16, 12]
    for spec in specs:
        spec["shape"] = [3, 50]
    inputs = asking.make_inputs(reference, specs, tmp_path)
    refused = asking.refusal(relay_twin.session, "run", {**params, "inputs": str(inputs)})
    assert refused.engine_code == "invalid_inputs"
    assert "no entry point serves batch=3, sequence=50" in refused.message


def test_one_part_becomes_a_library_as_compile_writes_it(
    twin: Twin, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    [(size, folder), *_] = request.getfixturevalue(f"{twin.name}_parts").items()
    answer = join(twin, {size: folder}, tmp_path, model_digest="")
    assert answer["exact"] == ["batch", "sequence"]
    assert answer["weight_bytes"] == answer["separate_weight_bytes"]
    assert (tmp_path / "libmodel.so").read_bytes() == (folder / "libmodel.so").read_bytes()


def test_equal_builds_make_equal_parts(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    parts = [build_sentences(twin, reference, tmp_path / str(number), (1, 16)) / "model.part" for number in range(2)]
    assert parts[0].read_bytes() == parts[1].read_bytes()
    with tarfile.open(parts[0]) as archive:
        assert archive.getnames()[:3] == ["plan.json", "weights.bin", "kernels-0.o"]


def test_damaged_parts_are_refused(relay_twin: Twin, relay_parts: dict[tuple[int, ...], Path], tmp_path: Path) -> None:
    content = (relay_parts[1, 16] / "model.part").read_bytes()
    rng = random.Random(1)  # noqa: S311 - places, not secrets
    used = len(content.rstrip(b"\0"))
    changed = [(place, 1 << rng.randrange(8)) for place in (rng.randrange(used) for _ in range(25))]
    damaged = [content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :] for at, bit in changed]
    (tmp_path / "out").mkdir()
    for number, other in enumerate((*damaged, b"", b"text", content[: len(content) // 2], content[:512])):
        if number < len(damaged) and _is_slack(content, changed[number][0]):
            continue
        (tmp_path / "model.part").write_bytes(other)
        params = described(relay_twin, {(1, 16): tmp_path, (1, 32): relay_parts[1, 32]}, tmp_path / "out")
        refused = asking.refusal(relay_twin.session, "join", params)
        assert refused.engine_code == "invalid_bundle", (changed[number : number + 1], refused)
        assert "model.part is damaged, or no part of a library" in refused.message
    assert not list((tmp_path / "out").iterdir())


def _is_slack(content: bytes, place: int) -> bool:
    """Whether a byte is in the padding after a file in a tar, which nothing reads."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        ends = [(each.offset_data + each.size, each.offset_data + -(-each.size // 512) * 512) for each in archive]
    return any(end <= place < rounded for end, rounded in ends)


def test_parts_that_do_not_fit_together_are_refused(
    relay_twin: Twin,
    reference: EngineSession,
    relay_parts: dict[tuple[int, ...], Path],
    tmp_path: Path,
) -> None:
    one = build_sentences(relay_twin, reference, tmp_path / "one", (1, 16), threads=1)
    shapes = {"image": [1, 3, 16, 16]}
    other = build(relay_twin, reference, tmp_path / "other", models.small_network(), shapes, threads=2)
    two = {size: relay_parts[size] for size in ((4, 16), (4, 32))}
    for folders, changes, text in (
        ({(1, 16): one, **two}, {}, "the parts were tuned for different numbers of threads: [1, 2]"),
        ({**two, (1, 3): other}, {}, "the parts have different inputs: ids, mask; image"),
        (two, {"padding": {"ids": 0}}, "input mask has no value to pad it with"),
        ({(1, 1): two[4, 16], (4, 32): two[4, 32]}, {}, "input ids of a part is [4, 16]; its sizes say [1, 1]"),
    ):
        params = described(relay_twin, folders, tmp_path / "out", **changes)
        refused = asking.refusal(relay_twin.session, "join", params)
        assert refused.engine_code == "compile_failed"
        assert refused.message == f"the sizes cannot become one library: {text}"
    for changes, code in (({"parts": []}, "invalid_option"), ({"format": "tvm"}, "invalid_option")):
        params = {**described(relay_twin, two, tmp_path / "out"), **changes}
        assert asking.refusal(relay_twin.session, "join", params).engine_code == code
