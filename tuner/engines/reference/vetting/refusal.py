"""The one way to refuse a model."""

from __future__ import annotations

from tuner.engines.protocol.serving import EngineFailure

REASONS = {
    "not_onnx": "the bytes are no ONNX file, or are truncated",
    "checker": "`onnx.checker` refuses it",
    "ir_version": "an IR version that no release has, or a newer one than ours",
    "opset_version": "an operator set that no release has, a newer one than ours, or one domain twice",
    "external_data": "weights in other files, wherever in the model they are named",
    "too_many": "more nodes, tensors, values or functions than any network has, as written or with functions expanded",
    "nested_too_deep": "graphs within graphs, or functions that call functions, too deep or in a circle",
    "name": "a name that is too long, has control characters or is no UTF-8",
    "duplicate_name": "two inputs, outputs or weights of one name",
    "shape": "a negative or overflowing size",
    "dtype": "an element type that ONNX does not have",
    "tensor_size": "a tensor with more or fewer bytes than its shape and type say",
    "attribute": "a stride, kernel, group or the like of zero or less, or beyond 2³¹",
    "endless_loop": "a loop that nothing ends, or not within a sensible number of rounds",
    "memory": "a value larger than what reading a model may take (`TUNESMITH_INSPECT_MEMORY_MB`)",
}
"""``details.reason`` of ``invalid_model``: stable."""
_LONGEST_SHOWN = 100


def refuse(reason: str, message: str) -> EngineFailure:
    assert reason in REASONS, reason  # noqa: S101 - a slip of ours
    return EngineFailure("invalid_model", message, details={"reason": reason})


def shown(name: str | bytes) -> str:
    """A stranger's name in a message: short, and on one line."""
    if isinstance(name, bytes):
        return ascii(name[:_LONGEST_SHOWN])
    return ascii(name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…")
