"""Peak speeds of this machine's CPU, measured with loops of machine code.

A kernel in C would measure its compiler, too, and a library's matrix product its own quality.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from domain.profiles import Bandwidth, Peak
from tuner.results import machine_code

_CPUINFO = Path("/proc/cpuinfo")
_SIZES = (256 * 1024, 2 * 1024**2, 16 * 1024**2, 64 * 1024**2)
"""Bytes of all threads together; the largest is beyond most caches."""
_SLICE_BYTES = 16 * 1024**2
"""Bytes that a slice reads, in passes if the data are smaller."""
_SLICE_TURNS = 200_000
_SECONDS = 0.06
"""Of each measurement."""
_LEAST_SLICES = 3
_SUMS = 12
"""Independent sums: as many as the units of any core since 2013 have in flight, or more."""
_LINES = 256
"""Bytes that the loop of reads reads in a turn."""


def measure(threads: int) -> Peak:
    """Measure for about a third of a second. On processors other than x86-64 with AVX2, nothing is known."""
    flags = _flags()
    with contextlib.suppress(OSError):
        if {"avx2", "fma"} <= flags:
            lanes = 16 if "avx512f" in flags else 8
            return Peak(
                flops=_flops(machine_code.function(_sums(lanes)), lanes, threads),
                bandwidths=tuple(_bandwidths(machine_code.function(_reads(), 3), threads)),
            )
    return Peak(flops=None)


def _sums(lanes: int) -> bytes:
    """Return ``void f(turns)``: ``_SUMS`` fused products and sums of vectors a turn, none of which waits for another.

    ``vfmadd231ps`` of registers 0 to 11 with register 15, all zero: the data do not change the time.
    """
    body = b""
    for register in range(_SUMS):
        operands = 0xC7 | (register & 7) << 3
        if lanes == 16:
            body += bytes((0x62, 0xD2 if register < 8 else 0x52, 0x05, 0x48, 0xB8, operands))
        else:
            body += bytes((0xC4, 0xC2 if register < 8 else 0x42, 0x05, 0xB8, operands))
    return bytes.fromhex("c5 fc 77") + _loop(body, "48 ff cf") + bytes.fromhex("c5 f8 77 c3")


def _reads() -> bytes:
    """Return ``void f(turns, address, passes)``: loads ``_LINES`` bytes a turn, from the start again in each pass."""
    loads = b"".join(
        bytes((0xC5, 0xFC, 0x10, 0x81 | register << 3)) + (32 * register).to_bytes(4, "little") for register in range(8)
    )
    turns = _loop(loads + bytes.fromhex("48 81 c1 00 01 00 00"), "48 ff c8")
    passes = _loop(bytes.fromhex("48 89 f8 48 89 f1") + turns, "48 ff ca")
    return passes + bytes.fromhex("c5 f8 77 c3")


def _loop(body: bytes, decrement: str) -> bytes:
    """Repeat ``body`` until the register that ``decrement`` decrements is zero."""
    whole = body + bytes.fromhex(decrement)
    return whole + bytes((0x75, 256 - (len(whole) + 2)))


def _flops(run: Callable[..., None], lanes: int, threads: int) -> float:
    return _SLICE_TURNS * _SUMS * lanes * 2 * _rate([lambda: run(_SLICE_TURNS)] * threads)


def _bandwidths(run: Callable[..., None], threads: int) -> list[Bandwidth]:
    found = []
    with contextlib.ExitStack() as stack:
        addresses = []
        for _ in range(threads):
            buffer = stack.enter_context(mmap.mmap(-1, max(_SIZES) // threads + mmap.PAGESIZE))
            addresses.append(_address(buffer))
            # Unwritten pages are all the same one.
            ctypes.memset(addresses[-1], 1, len(buffer))
        for size in _SIZES:
            turns, passes = size // threads // _LINES, max(1, _SLICE_BYTES // size)
            rate = _rate([_call(run, turns, address, passes) for address in addresses])
            found.append(Bandwidth(size=size, speed=turns * _LINES * passes * rate))
    return found


def _address(buffer: mmap.mmap) -> int:
    """The ctypes object does not outlive this function: with it, the buffer could not be closed."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def _call(run: Callable[..., None], *arguments: int) -> Callable[[], None]:
    return lambda: run(*arguments)


def _rate(calls: Sequence[Callable[[], None]]) -> float:
    """Return calls per second, with a thread for each call: the sum of the threads' quickest calls.

    Of short calls some are not interrupted by other programs.
    """
    quickest: list[float] = []
    ready = threading.Barrier(len(calls))

    def work(call: Callable[[], None]) -> None:
        ready.wait()
        until = time.perf_counter() + _SECONDS
        times: list[float] = []
        while len(times) < _LEAST_SLICES or time.perf_counter() < until:
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        quickest.append(min(times))

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(1 / seconds for seconds in quickest)


def _flags() -> set[str]:
    with contextlib.suppress(OSError):
        for line in _CPUINFO.read_text(errors="replace").splitlines():
            if line.startswith("flags"):
                return set(line.split())
    return set()
