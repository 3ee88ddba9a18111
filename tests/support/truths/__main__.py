"""Questions with known answers for published bundles: ``python -m tests.support.truths QUESTION BUNDLE …``.

Each prints what the bundle computes, as JSON. ``quantize`` and ``detector`` make models of files of the zoo, ``page``
an input. Requires ``onnx``, ONNX Runtime and numpy.
"""

from __future__ import annotations

import json
import struct
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from tunesmith.runtime import InferenceSession

PICTURES, LINE_FILE = Path(__file__).parent, "line.png"
SINES = (220.0, 440.0, 523.25)
_RATE, _FRAME, _CONTEXT = 16_000, 512, 64
"""Of the official Silero VAD at 16 kHz: samples a second, new ones a run, and earlier ones before them."""


def picture(name: str) -> Any:
    """Return the gray pixels of a PNG file as this folder has them: 8 bits, rows without filters."""
    content, place, data = (PICTURES / name).read_bytes(), 8, b""
    width, height = struct.unpack_from(">II", content, 16)
    while place < len(content):
        (length,) = struct.unpack_from(">I", content, place)
        if content[place + 4 : place + 8] == b"IDAT":
            data += content[place + 8 : place + 8 + length]
        place += length + 12
    rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return rows[:, 1:].astype(np.float32)


def line(pixels: Any) -> Any:
    """Return a line of text as PP-OCR takes it: [1, 3, height, width], from -1 to 1."""
    return np.broadcast_to(pixels / 127.5 - 1, (1, 3, *pixels.shape)).astype(np.float32)


def _session(bundle: str) -> Any:
    return InferenceSession(bundle, runtime="library")


def speech(bundle: str) -> dict[str, float]:
    """Return the mean probability of speech in each of four sounds."""
    seconds = np.arange(2 * _RATE) / _RATE
    generator = np.random.default_rng(0)
    sounds = {
        "voice": voice(),
        "silence": np.zeros_like(seconds),
        "noise": 0.01 * generator.standard_normal(seconds.shape),
        "hum": 0.1 * np.sin(2 * np.pi * 50 * seconds),
    }
    session = _session(bundle)
    return {name: float(np.mean(list(_heard(session, sound)))) for name, sound in sounds.items()}


def _heard(session: Any, sound: Any) -> Iterator[float]:
    padded = np.concatenate([np.zeros(_CONTEXT), sound]).astype(np.float32)
    state = np.zeros((2, 1, 128), np.float32)
    for start in range(0, len(sound) - _FRAME, _FRAME):
        frame = padded[start : start + _CONTEXT + _FRAME][None]
        found, state = session.run(None, {"input": frame, "state": state, "sr": np.array(_RATE, np.int64)})
        yield float(found.item())


def text(bundle: str, model: str) -> str:
    """Return what the recognizer reads on the line; ``model`` is its ONNX file, which lists the characters."""
    listed = next(entry.value for entry in onnx.load(model).metadata_props if entry.key == "character")
    characters = ["", *listed.split("\n"), " "]
    [scores] = _session(bundle).run(None, {"x": line(picture(LINE_FILE))})
    steps = scores[0].argmax(1)
    return "".join(characters[now] for before, now in zip([0, *steps], steps, strict=False) if now != before)


def direction(bundle: str) -> list[list[float]]:
    """Return the scores of [upright, upside down] for the line, and for it turned by 180 degrees."""
    session = _session(bundle)
    return [session.run(None, {"x": line(each)})[0][0].tolist() for each in _directions()[:2]]


def kinds(bundle: str, model: str) -> list[str]:
    """Return what Magika takes a Python file, JSON, a program and a picture for; ``model`` is its ONNX file."""
    config = json.loads(Path(model).with_name("config.min.json").read_text())
    text = json.dumps({"name": LINE_FILE, "sizes": [1, 2, 3], "nested": {"a": None, "b": True}}, indent=2)
    contents = [Path(__file__).read_bytes(), text.encode(), Path(sys.executable).read_bytes()]
    contents.append((PICTURES / LINE_FILE).read_bytes())
    session = _session(bundle)
    scores = [session.run(None, {"bytes": _ends(content, config)})[0] for content in contents]
    return [config["target_labels_space"][int(each[0].argmax())] for each in scores]


def _ends(content: bytes, config: dict[str, Any]) -> Any:
    """Return the first and the last bytes of a file as Magika takes them: int32 [1, 2048]."""
    block, padding = config["block_size"], config["padding_token"]
    start, end = content[:block].lstrip()[: config["beg_size"]], content[-block:].rstrip()[-config["end_size"] :]
    values = np.full((1, config["beg_size"] + config["end_size"]), padding, np.int32)
    values[0, : len(start)] = list(start)
    values[0, values.size - len(end) :] = list(end)
    return values


def pitches(bundle: str) -> list[float]:
    """Return the pitches that Basic Pitch finds in sines of ``SINES`` Hz, in Hz."""
    session, seconds = _session(bundle), np.arange(43_844) / 22_050
    found = []
    for sine in SINES:
        sound = 0.5 * np.sin(2 * np.pi * sine * seconds).astype(np.float32)
        [notes] = session.run(["StatefulPartitionedCall:1"], {"serving_default_input_2:0": sound[None, :, None]})
        # A column for each key of a piano, from A0 on.
        found.append(27.5 * 2 ** (int(notes[0].mean(axis=0).argmax()) / 12))
    return found


def _directions() -> list[Any]:
    pixels = picture(LINE_FILE)[:, :192]
    shifted = picture(LINE_FILE)[:, 64:256]
    return [pixels, pixels[::-1, ::-1], shifted, shifted[::-1, ::-1]]


SIDE, _MARGIN, _GRAY = 416, (100, 40), 114.0
"""Pixels of the detector's picture, above and left of the line in it, and the gray around it."""


def detector(source: str, target: str) -> None:
    """Add what turns the outputs of the YOLOX detector into the corners of boxes, with NonMaxSuppression."""
    model = onnx.load(source)
    graph, [raw] = model.graph, model.graph.output
    cells, sizes = zip(*(_cells(stride) for stride in (8, 16, 32)), strict=True)
    values = {
        "cell": np.concatenate(cells, axis=1), "size": np.concatenate(sizes, axis=1), "half": np.float32(0.5),
        "most": np.array([50]), "overlap": np.float32([0.45]), "least": np.float32([0.4]), "two": np.array(2),
    }  # fmt: skip
    graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in values.items())
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = [
        ("Split", [raw.name], ["xy", "wh", "object", "class"], {"axis": 2, "split": [2, 2, 1, 1]}),
        ("Add", ["xy", "cell"], ["place"], {}),
        ("Mul", ["place", "size"], ["center"], {}),
        ("Exp", ["wh"], ["extent"], {}),
        ("Mul", ["extent", "size"], ["whole"], {}),
        ("Mul", ["whole", "half"], ["reach"], {}),
        ("Sub", ["center", "reach"], ["low"], {}),
        ("Add", ["center", "reach"], ["high"], {}),
        ("Concat", ["low", "high"], ["corners"], {"axis": 2}),
        ("Mul", ["object", "class"], ["score"], {}),
        ("Transpose", ["score"], ["scores"], {"perm": [0, 2, 1]}),
        ("NonMaxSuppression", ["corners", "scores", "most", "overlap", "least"], ["chosen"], {}),
        ("Gather", ["chosen", "two"], ["row"], {"axis": 1}),
        ("Squeeze", ["corners"], ["all"], {"axes": [0]}),
        ("Gather", ["all", "row"], ["boxes"], {"axis": 0}),
    ]
    graph.node.extend(onnx.helper.make_node(kind, given, made, **more) for kind, given, made, more in nodes)
    graph.output.remove(raw)
    graph.output.append(onnx.helper.make_tensor_value_info("boxes", onnx.TensorProto.FLOAT, ["count", 4]))
    onnx.save(model, target)


def _cells(stride: int) -> tuple[Any, Any]:
    side = SIDE // stride
    rows, columns = np.divmod(np.arange(side * side), side)
    return np.float32(np.stack([columns, rows], 1)[None]), np.full((1, side * side, 1), stride, np.float32)


def page(target: str) -> None:
    """Write the detector's input: the line on an empty page."""
    pixels, (top, left) = picture(LINE_FILE), _MARGIN
    whole = np.full((1, 3, SIDE, SIDE), _GRAY, np.float32)
    whole[:, :, top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    np.savez(target, images=whole)


def boxes(outputs: str) -> dict[str, Any]:
    """Return the number of boxes, the largest overlap of two, and the columns of the letters that lie in none."""
    found = np.load(outputs)["boxes"] - np.array([*_MARGIN[::-1], *_MARGIN[::-1]])
    ink = np.flatnonzero(np.diff(np.pad((picture(LINE_FILE) < 128).any(0).astype(int), 1)))
    letters = ink.reshape(-1, 2).mean(1)
    missed = [float(x) for x in letters if not ((found[:, 0] < x) & (x < found[:, 2])).any()]
    pairs = [_overlap(one, other) for place, one in enumerate(found) for other in found[:place]]
    return {"boxes": len(found), "letters": len(letters), "missed": missed, "overlap": max(pairs, default=0.0)}


def _overlap(one: Any, other: Any) -> float:
    """Return the intersection of two boxes over their union."""
    common = np.prod(np.clip(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0, None))
    return float(common / (np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - common))


def quantize(source: str, target: str) -> None:
    """Quantize the classifier of directions in QDQ form, its convolutions, calibrated with the line."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter([{"x": line(each)} for each in _directions()])

        def get_next(self) -> dict[str, Any] | None:
            return next(self._left, None)

    quantization.quantize_static(
        source, target, Reader(), quant_format=quantization.QuantFormat.QDQ, op_types_to_quantize=["Conv"],
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip


def difference(bundle: str, archive: str) -> float:
    """Return the largest error against ONNX Runtime on the files of an archive, relative to the largest output."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        reference = onnxruntime.InferenceSession(next(Path(folder).glob("*.onnx")))
        feed = {"x": np.random.default_rng(0).standard_normal(reference.get_inputs()[0].shape, dtype=np.float32)}
        [expected] = reference.run(None, feed)
    [found] = _session(bundle).run(None, feed)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def voice() -> Any:
    """Return two seconds of five vowels, a syllable each quarter of a second, as a man of 110 to 140 Hz says them."""
    seconds = np.arange(2 * _RATE) / _RATE
    syllable = (seconds * 4).astype(int)
    pitch = 125 + 15 * np.sin(2 * np.pi * 0.7 * seconds) + 2 * np.sin(2 * np.pi * 5 * seconds)
    phase = 2 * np.pi * np.cumsum(pitch) / _RATE
    # Formants glide from one vowel to the next.
    centers = np.array(_FORMANTS)[syllable % len(_FORMANTS)]
    smooth = np.hanning(_RATE // 20) / np.hanning(_RATE // 20).sum()
    centers = np.stack([np.convolve(column, smooth, "same") for column in centers.T])
    sound = np.zeros_like(seconds)
    for harmonic in range(1, 30):
        frequency = harmonic * pitch
        gain = np.prod(
            [_resonance(frequency, center, width) for center, width in zip(centers, _WIDTHS, strict=True)], 0
        )
        sound += gain / harmonic * np.sin(harmonic * phase)
    sound += 0.02 * np.random.default_rng(0).standard_normal(sound.shape)
    loudness = 0.15 + 0.85 * np.sin(np.pi * (seconds * 4 % 1)) ** 0.5
    return 0.3 * sound * loudness / np.abs(sound * loudness).max()


_FORMANTS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))
"""Of a, i, u, e and o (Peterson and Barney 1952), in Hz."""
_WIDTHS = (60, 90, 150)


def _resonance(frequency: Any, center: Any, width: float) -> Any:
    return 1 / np.hypot(1 - (frequency / center) ** 2, frequency * width / center**2)


if __name__ == "__main__":
    questions = {"speech": speech, "text": text, "direction": direction, "difference": difference, "boxes": boxes}
    questions |= {"kinds": kinds, "pitches": pitches}
    makers = {"quantize": quantize, "detector": detector, "page": page}
    name, *arguments = sys.argv[1:]
    if name in makers:
        makers[name](*arguments)
    else:
        print(json.dumps(questions[name](*arguments)))  # noqa: T201 - the answer
