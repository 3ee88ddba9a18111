from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from api.dashboard import formats


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0, "0.00 ns"),
        (1.234e-9, "1.23 ns"),
        (9.996e-7, "1.00 µs"),
        (8.12e-4, "812 µs"),
        (0.0009996, "1.00 ms"),
        (0.001234, "1.23 ms"),
        (0.01234, "12.3 ms"),
        (0.9996, "1.00 s"),
        (61.5, "61.5 s"),
    ],
)
def test_latencies(seconds: float | None, text: str) -> None:
    assert formats.latency(seconds) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("as fast: 0.0661 ms against 0.125 ms untuned; tuned is", "as fast: 66.1 µs against 125 µs untuned; tuned is"),
        ("27.5 ms tuned, 1 ms untuned, 1520 ms.", "27.5 ms tuned, 1.00 ms untuned, 1.52 s."),
        ("in 3.1e-05 ms", "in 31.0 ns"),
        ("1e999 ms and 1e308 ms are nobody's", "1e999 ms and 1e308 ms are nobody's"),
        ("v1.5 ms-tools and x0.5 ms stay, as do 3 msgs", "v1.5 ms-tools and x0.5 ms stay, as do 3 msgs"),
    ],
)
def test_sentences(text: str, shown: str) -> None:
    assert formats.sentence(text) == shown


def test_ratios_and_shares() -> None:
    assert [formats.ratio(value) for value in (None, 1.906, 12.34, 123.4)] == ["–", "1.91×", "12.3×", "123×"]
    shares = [formats.percent(value) for value in (None, 0.0, 0.0321, 0.5, 1.0)]
    assert shares == ["–", "0 %", "3.2 %", "50 %", "100 %"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.31, "0.3 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3840, "1 h 4 min"),
        (7200, "2 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert formats.duration(seconds) == text


def test_ages() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    ages = [formats.age(now - timedelta(seconds=seconds), now) for seconds in (-5, 0, 59, 61, 7300, 200_000)]
    assert ages == ["0 s", "0 s", "59 s", "1 min", "2 h", "2 d"]


def test_sizes_and_counts() -> None:
    assert [formats.size(count) for count in (None, 54, 999, 1000, 1_640_000, 2_000_000_000)] == [
        "–", "54 B", "999 B", "1.00 kB", "1.64 MB", "2.00 GB",
    ]  # fmt: skip
    assert formats.count(1_234_567) == "1\u202f234\u202f567"


def test_shapes_and_words() -> None:
    assert formats.shape(["batch", 3, None]) == "batch×3×?"
    assert formats.shape([]) == "scalar"
    assert formats.words("run_timeout") == "run timeout"
