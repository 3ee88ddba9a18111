from __future__ import annotations

import traceback

import pytest

from tuner.engines.runtime import faults

FRAMES = "".join(f"  {place}: tvm::codegen::Visit<{'x' * 300}>(tvm::tir::Stmt const&)\n" for place in range(40, -1, -1))
TVM = f"""Traceback (most recent call last):
{FRAMES}  File "/project/tvm/src/relay/backend/token_allocator.cc", line 42
InternalError: Check failed: *pval >= 0 (-8 vs. 0) : Cannot allocate memory for tensor
 with negative shape -8"""
FOUND = """InternalError: Check failed: *pval >= 0 (-8 vs. 0) : Cannot allocate memory for tensor
 with negative shape -8"""


def test_a_trace_of_tvm_comes_to_its_check() -> None:
    assert faults.text_of(TVM) == FOUND
    assert faults.text_of(RuntimeError(TVM)) == FOUND


def test_the_innermost_error_of_several_is_told() -> None:
    both = f"{TVM}\n\nDuring handling of the above exception, another exception occurred:\n\n{TVM.replace('-8', '-9')}"
    assert faults.text_of(both) == FOUND.replace("-8", "-9")


def test_a_trace_of_python_comes_to_its_exception() -> None:
    try:
        raise ValueError("12 is no multiple of 5")
    except ValueError:
        text = traceback.format_exc()
    assert faults.text_of(text) == "ValueError: 12 is no multiple of 5"


def test_an_exception_in_a_trace_needs_no_name_in_error() -> None:
    text = """Traceback (most recent call last):
  File "tasks.py", line 12, in build
    raise OpNotImplemented(names)
tvm.error.OpNotImplemented: Det is not supported"""
    assert faults.text_of(text) == "tvm.error.OpNotImplemented: Det is not supported"
    banner = f"TVMError: \n----\nAn error occurred in TVM.\n----\n{FRAMES}  Check failed: (f) is false: no exp"
    assert faults.text_of(banner) == "Check failed: (f) is false: no exp"


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (ValueError("too small"), "ValueError: too small"),
        (AssertionError(), "AssertionError"),
        ("ended by signal 11", "ended by signal 11"),
        ("tvm.error.OpNotImplemented: no such operator", "tvm.error.OpNotImplemented: no such operator"),
        (KeyError("w"), "KeyError: 'w'"),
    ],
)
def test_what_has_no_trace_stays_as_it_is(error: BaseException | str, found: str) -> None:
    assert faults.text_of(error) == found
    assert faults.with_trace(error) == found
    assert faults.trace(error) == ""


def test_messages_stay_short_and_begin_with_what_went_wrong() -> None:
    text = faults.with_trace(TVM, longest=700)
    assert text.startswith(FOUND + "\n")
    assert len(text) <= 700
    assert text.splitlines()[2].startswith("  0: tvm::codegen::Visit<")
    assert len(faults.text_of("ValueError: " + "x" * 5000)) == 1000


def test_a_trace_is_cut_at_whole_lines() -> None:
    kept = faults.trace(TVM, longest=1500)
    assert 1000 < len(kept) <= 1500
    assert kept.endswith('token_allocator.cc", line 42')
    assert kept.startswith("  3: tvm::codegen::Visit<")
