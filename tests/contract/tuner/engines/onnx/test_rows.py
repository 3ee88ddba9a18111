"""Data sets in the onnx engine: what is refused, what a run gets, and what labels say."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.onnx import inside
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

_WRITING = """
import numpy as np, os
os.chdir(sys.argv[1])
x = np.arange(24, dtype=np.float32).reshape(6, 4)
np.savez_compressed("good.npz", x=x, labels=np.arange(6))
np.savez("lengths.npz", x=x, labels=np.zeros(5))
np.savez("nan.npz", x=np.where(x == 9, np.nan, x))
np.savez("texts.npz", x=np.array(["a", "b"]))
np.savez("order.npz", x=x.astype(">f4"))
np.savez("objects.npz", x=np.array([{}], dtype=object))
np.savez("scalar.npz", x=np.float32(1))
np.savez("empty.npz", x=x[:0])
np.savez("nothing.npz")
np.savez("named.npz", **{"x\\n": x})
np.save("array.npy", x)
eye, wrong = np.eye(7, dtype=np.float32), np.roll(np.eye(7, dtype=np.float32), 1, axis=1)
classes = np.arange(7)
np.savez("eye.npz", count=classes, y=eye)
np.savez("rolled.npz", count=classes, y=wrong)
np.savez("no-y.npz", count=classes)
np.savez("nan-y.npz", count=classes, y=np.full_like(eye, np.nan))
np.savez("classes.npz", labels=classes)
np.savez("values.npz", labels=eye + 1)
np.savez("off.npz", count=classes, y=eye + 3)
np.savez("beyond.npz", labels=classes + 1)
np.savez("pairs.npz", labels=np.zeros((7, 2), np.int64))
np.savez("pixel.npz", y=np.float32([[[[0.1]], [[0.9]]]]))
np.savez("one.npz", labels=np.array([1]))
told = None
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    inside.run(_WRITING, folder)
    (folder / "bytes.npz").write_bytes(b"no zip")
    (folder / "start.npz").write_bytes(b"PK\x03\x04")
    (folder / "no bytes.npz").write_bytes(b"")
    content = (folder / "good.npz").read_bytes()
    for name, member in (("notes", "notes.txt"), ("twice", "x.npy")):
        path = folder / f"{name}.npz"
        path.write_bytes(content)
        with zipfile.ZipFile(path, "a") as archive:
            # Not by its name, of which the library would warn.
            archive.writestr("z.npy", archive.read("x.npy"))
        path.write_bytes(path.read_bytes().replace(b"z.npy", member.encode()[: len("z.npy")]))
    return folder


def test_arrays_are_described(reference: EngineSession, files: Path) -> None:
    assert reference.request("inspect_rows", {"path": str(files / "good.npz")}, timeout=60) == {
        "rows": 6,
        "arrays": [
            {"name": "x", "dtype": "float32", "shape": [6, 4]},
            {"name": "labels", "dtype": "int64", "shape": [6]},
        ],
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lengths.npz", "differ in their number of rows: 'x' 6, 'labels' 5"),
        ("nan.npz", "row 2 of array 'x' has numbers that are not finite"),
        ("texts.npz", "'x' is <U1, not of numbers"),
        ("order.npz", "not of numbers in this machine's byte order"),
        ("objects.npz", "not an .npz file"),
        ("scalar.npz", "'x' has no rows"),
        ("empty.npz", "'x' has no rows"),
        ("nothing.npz", "no arrays"),
        ("named.npz", "not a name of an input"),
        ("array.npy", "one array, not an .npz file"),
        ("bytes.npz", "not an .npz file"),
        ("start.npz", "not an .npz file"),
        ("no bytes.npz", "not an .npz file"),
        ("notes.npz", "'notes', which is no array"),
        ("twice.npz", "'x.npy' twice"),
    ],
)
def test_a_file_of_other_things_is_refused(reference: EngineSession, files: Path, name: str, message: str) -> None:
    refused = asking.refusal(reference, "inspect_rows", {"path": str(files / name)})
    assert refused.engine_code == "invalid_data_set"
    assert message in refused.message


def test_a_run_gets_its_rows_as_a_batch_or_one_as_the_whole_input(
    reference: EngineSession, files: Path, tmp_path: Path
) -> None:
    def split(shape: list[int], rows: int, runs: list[int]) -> Any:
        inputs = [{"name": "x", "dtype": "float32", "shape": shape}]
        params = {"path": str(files / "good.npz"), "inputs": inputs, "rows": rows, "runs": runs}
        made = reference.request("split_rows", {**params, "out_dir": str(tmp_path / str(rows))}, timeout=60)
        read = "import numpy as np\ntold = [{n: a.tolist() for n, a in np.load(path).items()} for path in sys.argv[1:]]"
        return inside.run(read, *map(Path, (*made["paths"], *made["labels"])))

    first, second, *labels = split([2, 4], 2, [0, 2])
    assert (first["x"], second["x"]) == ([[0, 1, 2, 3], [4, 5, 6, 7]], [[16, 17, 18, 19], [20, 21, 22, 23]])
    assert labels == [{"labels": [0, 1]}, {"labels": [4, 5]}]
    assert split([4], 1, [3]) == [{"x": [12, 13, 14, 15]}, {"labels": [3]}]


def _labelled(reference: EngineSession, files: Path, labels: str, expected: str, actual: str) -> Any:
    names = {"labels": labels, "expected": expected, "actual": actual}
    params = {name: str(files / f"{file}.npz") for name, file in names.items()}
    return reference.request("compare", params, timeout=60)["labelled"]


@pytest.mark.parametrize(("actual", "top1", "top5"), [("eye", 7, 7), ("rolled", 0, 5), ("no-y", 0, 0), ("nan-y", 0, 0)])
def test_hits_are_counted_for_both_sides(
    reference: EngineSession, files: Path, actual: str, top1: int, top5: int
) -> None:
    found = _labelled(reference, files, "classes", "eye", actual)
    assert (found["output"], found["count"], found["reference"]) == ("y", 7, {"top1": 7, "top5": 7})
    assert found["build"]["top1"] == top1
    if actual != "rolled":
        assert found["build"]["top5"] == top5


def test_few_classes_have_no_top5_and_trailing_pixels_do_not_count(reference: EngineSession, files: Path) -> None:
    assert _labelled(reference, files, "one", "pixel", "pixel")["build"] == {"top1": 1, "top5": None}


def test_values_have_a_mean_error(reference: EngineSession, files: Path) -> None:
    found = _labelled(reference, files, "values", "eye", "off")
    assert (found["reference"], found["build"], found["count"]) == ({"error": 49.0}, {"error": 98.0}, 49)


@pytest.mark.parametrize(
    ("labels", "message"), [("beyond", "label 7 is no class of an output with 7 classes"), ("pairs", "fit no output")]
)
def test_labels_that_are_no_classes_are_refused(
    reference: EngineSession, files: Path, labels: str, message: str
) -> None:
    with pytest.raises(errors.EngineRequestFailed, match=message) as caught:
        _labelled(reference, files, labels, "eye", "eye")
    assert caught.value.engine_code == "data_mismatch"
