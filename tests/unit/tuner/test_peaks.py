from __future__ import annotations

import pytest

from tuner.results import machine_code, peaks


@pytest.mark.parametrize("threads", [1, 2])
def test_this_machine_has_peaks(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "_SECONDS", 0.01)
    monkeypatch.setattr(peaks, "_SIZES", (256 * 1024, 8 * 1024**2))
    found = peaks.measure(threads)
    if not {"avx2", "fma"} <= peaks._flags():
        assert found.flops is None
        return
    assert found.flops is not None
    assert 1e9 < found.flops < 1e12 * threads
    assert [each.size for each in found.bandwidths] == [256 * 1024, 8 * 1024**2]
    assert all(1e8 < each.speed < 2e12 * threads for each in found.bandwidths)


def test_nothing_is_known_where_code_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("memory may not be made executable")

    monkeypatch.setattr(machine_code, "function", refused)
    found = peaks.measure(1)
    assert (found.flops, found.bandwidths) == (None, ())
