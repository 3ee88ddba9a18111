"""Rows for models of the zoo that have real weights: ``python -m bench.samples MODEL FILE.npz --model MODEL.onnx``.

Pictures are crops of the photographs in scikit-image, text is drawn on such crops, files are those of the installed
packages, and sounds are chords of decaying harmonics. Where the right answer is known, rows have labels.
"""

from __future__ import annotations

import argparse
import json
import site
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from skimage import data, transform

ROWS = 200
_PICTURES = (
    "astronaut", "chelsea", "coffee", "hubble_deep_field", "immunohistochemistry", "retina", "rocket",
    "stereo_motorcycle",
)  # fmt: skip
_MEAN_OF_BGR = (104.0, 117.0, 123.0)
_HARMLESS = 0
_IMAGE_MEAN, _IMAGE_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_KINDS = {".py": "python", ".json": "json", ".png": "png", ".jpg": "jpeg", ".so": "elf", ".md": "markdown"}
"""Suffixes of files whose contents Magika knows under these names."""
_RATE = 22_050
Rows = dict[str, Any]


def crops(side: tuple[int, int], random: Any) -> Iterator[Any]:
    """Yield crops [height, width, 3] of the photographs, 0 to 255, without end; ``side`` is height and width."""
    pictures = [np.asarray(each[0] if isinstance(each, tuple) else each) for each in _load()]
    while True:
        for picture in pictures:
            height = int(random.uniform(0.5, 1) * min(picture.shape[0], picture.shape[1] * side[0] / side[1]))
            width = int(height * side[1] / side[0])
            top, left = (
                int(random.integers(whole - part + 1))
                for whole, part in zip(picture.shape, (height, width), strict=False)
            )
            part = picture[top : top + height, left : left + width]
            yield transform.resize(part, side, preserve_range=True, anti_aliasing=True).astype(np.float32)


def _load() -> list[Any]:
    return [getattr(data, name)() for name in _PICTURES]


def _words(random: Any) -> str:
    names = [name.replace("_", " ") for name in dir(data) if not name.startswith("_")]
    return f"{names[random.integers(len(names))]} {random.integers(10_000)}"


def lines(side: tuple[int, int], random: Any) -> Iterator[Any]:
    """Yield lines of text [height, width, 3], 0 to 255, in dark or light letters on a crop."""
    for crop in crops(side, random):
        dark = bool(random.integers(2))
        picture = Image.fromarray(((crop * 0.3) + (170 if dark else 0)).astype(np.uint8))
        font = ImageFont.load_default(int(side[0] * random.uniform(0.5, 0.7)))
        gray = int(random.integers(0, 60) + (0 if dark else 190))
        ImageDraw.Draw(picture).text((side[1] * 0.03, side[0] * 0.12), _words(random), (gray,) * 3, font)
        yield np.asarray(picture, np.float32)


def pages(side: int, random: Any) -> Iterator[Any]:
    """Yield pictures [side, side, 3], 0 to 255, with some lines of text."""
    for crop in crops((side, side), random):
        picture = Image.fromarray((crop * 0.5 + 110).astype(np.uint8))
        pen = ImageDraw.Draw(picture)
        for line in range(int(random.integers(2, 6))):
            place = (side * random.uniform(0.02, 0.4), side * (0.05 + 0.18 * line))
            pen.text(place, _words(random), (20, 20, 40), ImageFont.load_default(int(side * random.uniform(0.04, 0.1))))
        yield np.asarray(picture, np.float32)


def _some(pictures: Iterator[Any]) -> Any:
    return np.stack([next(pictures) for _ in range(ROWS)])


def _channels_first(pictures: Any) -> Any:
    return np.ascontiguousarray(pictures.transpose(0, 3, 1, 2), np.float32)


def opennsfw(random: Any, _: Path) -> Rows:
    pictures = _some(crops((224, 224), random))[..., ::-1] - np.float32(_MEAN_OF_BGR)
    return {"input:0": pictures, "labels": np.full(ROWS, _HARMLESS)}


def direction(random: Any, _: Path) -> Rows:
    """Every other line is upside down."""
    pictures = _some(lines((48, 192), random)) / 127.5 - 1
    labels = np.arange(ROWS) // 4 % 2
    pictures[labels == 1] = pictures[labels == 1][:, ::-1, ::-1]
    return {"x": _channels_first(pictures), "labels": labels}


def recognizer(random: Any, _: Path) -> Rows:
    return {"x": _channels_first(_some(lines((48, 320), random)) / 127.5 - 1)}


def text_detector(random: Any, _: Path) -> Rows:
    pictures = _some(pages(320, random)) / 255
    return {"x": _channels_first((pictures - _IMAGE_MEAN) / _IMAGE_DEVIATION)}


def characters(random: Any, _: Path) -> Rows:
    gray = _some(lines((64, 160), random)).mean(axis=3, keepdims=True)
    return {"input1": _channels_first(gray / 127.5 - 1)}


def detector(random: Any, _: Path) -> Rows:
    return {"images": _channels_first(_some(pages(416, random)))}


def kinds(random: Any, model: Path) -> Rows:
    """The first and the last bytes of files, as Magika takes them."""
    config = json.loads(model.with_name("config.min.json").read_text())
    found = {suffix: sorted(Path(site.getsitepackages()[0]).rglob(f"*{suffix}")) for suffix in _KINDS}
    rows, labels = [], []
    while len(rows) < ROWS:
        suffix = list(_KINDS)[len(rows) % len(_KINDS)]
        if not found[suffix]:
            suffix = ".py"
        content = found[suffix][random.integers(len(found[suffix]))].read_bytes()
        rows.append(_ends(content, config))
        labels.append(config["target_labels_space"].index(_KINDS[suffix]))
    return {"bytes": np.stack(rows), "labels": np.array(labels)}


def _ends(content: bytes, config: dict[str, Any]) -> Any:
    block = config["block_size"]
    start, end = content[:block].lstrip()[: config["beg_size"]], content[-block:].rstrip()[-config["end_size"] :]
    values = np.full(config["beg_size"] + config["end_size"], config["padding_token"], np.int32)
    values[: len(start)] = list(start)
    values[values.size - len(end) :] = list(end)
    return values


def chords(random: Any, _: Path) -> Rows:
    seconds = np.arange(43_844) / _RATE
    rows = np.zeros((ROWS, seconds.size), np.float32)
    for row in rows:
        for _ in range(int(random.integers(1, 4))):
            pitch, decay = 440 * 2 ** (random.integers(-24, 24) / 12), random.uniform(0.5, 4)
            for harmonic in range(1, 8):
                row += np.exp(-decay * seconds) * np.sin(2 * np.pi * harmonic * pitch * seconds) / harmonic**1.5
        row += 0.002 * random.standard_normal(seconds.size)
        row *= 0.5 / np.abs(row).max()
    return {"serving_default_input_2:0": rows[:, :, None]}


MAKERS: dict[str, Callable[[Any, Path], Rows]] = {
    "opennsfw": opennsfw, "ppocr-cls": direction, "ppocr-rec": recognizer, "ppocr-det": text_detector,
    "crnn-ocr": characters, "yolox-det": detector, "magika": kinds, "basic-pitch": chords,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(MAKERS))
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="its ONNX file")
    options = parser.parse_args()
    rows = MAKERS[options.name](np.random.default_rng(0), options.model)
    np.savez(options.file, **rows)


if __name__ == "__main__":
    main()
