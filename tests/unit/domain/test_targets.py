from __future__ import annotations

import pytest

from domain import errors, targets


@pytest.mark.parametrize(
    ("text", "checked"),
    [
        ("native", "native"),
        (" native ", "native"),
        ("llvm", "llvm"),
        ("llvm  -mcpu=znver3", "llvm -mcpu=znver3"),
        ("llvm -mattr=+avx2,-fma -mcpu=znver3", "llvm -mcpu=znver3 -mattr=+avx2,-fma"),
        ("llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"),
        ("llvm -device=arm_cpu -mtriple=armv7l-linux-gnueabihf -mfloat-abi=hard",
         "llvm -mtriple=armv7l-linux-gnueabihf -mfloat-abi=hard -device=arm_cpu"),
        ("cuda -arch=sm_90", "cuda -arch=sm_90"),
        ("cuda -arch=sm_90a", "cuda -arch=sm_90a"),
    ],
)  # fmt: skip
def test_a_target_has_one_spelling(text: str, checked: str) -> None:
    assert targets.check_text(text) == checked
    assert targets.check_text(checked) == checked


def test_an_identity_has_one_spelling() -> None:
    identity = "llvm -mcpu=znver3 -mattr=+fma -num-cores=2"
    assert targets.canonical("llvm -mattr=+fma  -mcpu=znver3  -num-cores=2") == identity
    assert targets.canonical(" native ") == "native"
    with pytest.raises(errors.UnknownTarget):
        targets.canonical("lvm -num-cores=2")


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("lvm", "llvm"),
        ("navite", "native"),
        ("cuda -arch=sm_91", "sm_90"),
        ("cuda -arc=sm_90", "-arch"),
        ("llvm -mtripel=aarch64-linux-gnu", "-mtriple"),
        ("llvm -mtriple=aarch46-linux-gnu", "aarch64"),
        ("llvm -mfloat-abi=herd", "hard"),
    ],
)
def test_a_misspelled_target_has_near_matches(text: str, near: str) -> None:
    with pytest.raises(errors.UnknownTarget) as caught:
        targets.check_text(text)
    assert caught.value.details["near_matches"][0] == near
    assert repr(near) in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unknown target"),
        ("opencl", "unknown target"),
        ("cuda", "needs -arch"),
        ("llvm -num-cores=4", "-num-cores is not allowed"),
        ("llvm -mcpu", "-name=value"),
        ("llvm -mcpu=", "-name=value"),
        ("llvm mcpu=x", "-name=value"),
        ("llvm -mcpu=a;b", "-name=value"),
        ("llvm -mcpu=x -mcpu=y", "repeats"),
        ("llvm -mtriple=aarch64", "not a valid triple"),
        ("llvm -mtriple=aarch64--gnu", "not a valid triple"),
        ("llvm -mattr=avx2", "not a feature with a sign"),
        ("llvm -mattr=+avx2,", "not a feature with a sign"),
        ("llvm -arch=sm_90", "do not support option"),
        ("cuda -mcpu=znver3", "do not support option"),
    ],
)
def test_what_is_no_target(text: str, reason: str) -> None:
    with pytest.raises(errors.UnknownTarget, match=reason) as caught:
        targets.check_text(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "native",
        "llvm",
        "llvm -mcpu=znver3",
        "llvm -mcpu=neoverse-n1",
        "llvm -mtriple=arm64-apple-darwin -mcpu=cortex-a72",
        "llvm -mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a9",
        "llvm -mtriple=wasm32-unknown-unknown -mcpu=whatever",
        "cuda -arch=sm_90",
    ],
)
def test_known_cpus_pass(text: str) -> None:
    targets.check_cpu(text)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("llvm -mcpu=znver33", "znver3"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx51", "skylake-avx512"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a722", "cortex-a72"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver3", None),
    ],
)
def test_unknown_cpus_are_refused_with_near_ones(text: str, near: str | None) -> None:
    with pytest.raises(errors.UnknownTarget, match="LLVM knows no CPU") as caught:
        targets.check_cpu(text)
    assert caught.value.hint
    if near:
        assert near in caught.value.details["near_matches"]
    targets.check_cpu(text, further=[targets.option_of(text, "-mcpu") or ""])


def test_the_kind_of_a_target() -> None:
    kinds = [targets.kind_of(text) for text in ("native", "llvm -mcpu=x", "cuda -arch=sm_90")]
    assert kinds == ["llvm", "llvm", "cuda"]


def test_a_thread_count_is_taken_off() -> None:
    identity = targets.Target(text="llvm -mcpu=znver3", threads=2).identity
    assert targets.split_threads(identity) == ("llvm -mcpu=znver3", " -num-cores=2")
    assert targets.split_threads("llvm -mcpu=znver3") == ("llvm -mcpu=znver3", "")
    assert targets.split_threads("llvm -num-cores=x") == ("llvm -num-cores=x", "")


def test_a_device_with_other_threads_has_another_key() -> None:
    device = targets.Device(key="x86_64/Zen3/avx2/t8", name="Zen 3", threads=8)
    assert device.with_threads(2) == targets.Device(key="x86_64/Zen3/avx2/t2", name="Zen 3", threads=2)
    gpu = targets.Device(key="cuda/tesla-t4/sm_75", name="Tesla T4", threads=8)
    assert gpu.with_threads(2) == targets.Device(key="cuda/tesla-t4/sm_75", name="Tesla T4", threads=2)
