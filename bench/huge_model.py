"""An ONNX model as large as wanted: one node that looks rows up in one weight, written without ever being in memory."""

from __future__ import annotations

from pathlib import Path

_ROW = 1024
_CHUNK = 1024 * 1024
_FLOAT, _INT64 = 1, 7
_OPSET = 17


def write(path: Path, size: int) -> None:
    """``size`` is that of the weight, in bytes, to the next row; all zeros."""
    rows = -(-size // (4 * _ROW))
    tensor = _number(1, rows) + _number(1, _ROW) + _number(2, _FLOAT) + _text(8, "w")
    raw = rows * 4 * _ROW
    tensor_size = len(tensor) + len(_header(9, raw)) + raw
    rest = b"".join(
        [
            _message(1, [_text(1, "w"), _text(1, "i"), _text(2, "y"), _text(4, "Gather")]),
            _text(2, "huge"),
            _value(11, "i", _INT64, [1]),
            _value(12, "y", _FLOAT, [1, _ROW]),
        ]
    )
    graph_size = len(rest) + len(_header(5, tensor_size)) + tensor_size
    with path.open("wb") as file:
        file.write(_number(1, 8) + _message(8, [_text(1, ""), _number(2, _OPSET)]) + _header(7, graph_size) + rest)
        file.write(_header(5, tensor_size) + tensor + _header(9, raw))
        for start in range(0, raw, _CHUNK):
            file.write(bytes(min(_CHUNK, raw - start)))


def _value(field: int, name: str, dtype: int, shape: list[int]) -> bytes:
    dimensions = _message(2, [_message(1, [_number(1, size)]) for size in shape])
    return _message(field, [_text(1, name), _message(2, [_message(1, [_number(1, dtype), dimensions])])])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _header(field, len(value)) + value.encode()


def _message(field: int, parts: list[bytes]) -> bytes:
    content = b"".join(parts)
    return _header(field, len(content)) + content


def _header(field: int, length: int) -> bytes:
    return _varint(field << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
