"""``./run docs``: a list of every message with its code, read from the calls that raise errors.

The source is parsed, not imported, so that the list includes the engines, which run in their own environments. A call
whose message comes from a variable that is not assigned a text in the same function, or from a library, has no entry.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from domain import errors

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("api", "domain", "process", "serve", "storage", "tuner", "worker")
_ENGINE = "EngineFailure"
"""The exception of engines: its first argument is the code, its second the message."""
_CODES = {kind.__name__: kind.code for kind in errors.every()}
_MOST_TEXTS = 4
"""Of one expression, such as a choice between messages."""

_INTRODUCTION = """\
# Messages by code

Written by `./run docs` from the source: every code of the service and of engines, with its HTTP status, the hint that
accompanies it by default, and the messages. `{name}` stands for a value that the message contains. See also
[errors.md](../docs/reference/errors.md) and [engine-protocol.md](../docs/reference/engine-protocol.md).
"""


def main() -> int:
    sys.stdout.write(document(_ROOT))
    return 0


def document(root: Path) -> str:
    """Every message that errors under ``root`` are raised with, by code."""
    found: dict[str, set[str]] = defaultdict(set)
    paths = [path for folder in _FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    modules = [_Module(ast.parse(path.read_text(encoding="utf-8"))) for path in paths]
    public: dict[str, _Helper] = {}
    for module in modules:
        module.learn()
        public |= {name: helper for name, helper in module.helpers.items() if not name.startswith("_")}
    for module in modules:
        for code, message in module.messages(public):
            found[code].add(message)
    parts = [_INTRODUCTION]
    kinds = {kind.code: kind for kind in errors.every()}
    for code in sorted({*found, *kinds}):
        parts.append(f"\n## {code}\n\n")
        if code in kinds:
            hint = kinds[code].default_hint
            parts.append(f"Status {kinds[code].status}. {f'Default hint: {hint}' if hint else 'No default hint.'}\n\n")
        parts += [f"* {message}\n" for message in sorted(found[code])]
    return "".join(parts)


@dataclass(frozen=True, kw_only=True)
class _Helper:
    """A function that makes an error from a message that it is passed."""

    code: str | int
    """The code, or the position of the argument that is the code."""
    position: int
    """Of the message, or of a part of it, among the arguments."""
    texts: list[str]
    """The messages, in which ``{parameter}`` stands for that argument."""
    parameter: str


@dataclass
class _Module:
    tree: ast.Module
    helpers: dict[str, _Helper] = field(default_factory=dict)
    _direct: list[tuple[str, str]] = field(default_factory=list)

    def learn(self) -> None:
        """Read the module, and find its helpers."""
        for function in self._functions():
            self._direct += self._raised(function)

    def messages(self, helpers: Mapping[str, _Helper]) -> Iterator[tuple[str, str]]:
        """Code and message of each call; ``helpers``: those of other modules, by name."""
        yield from self._direct
        known = {**helpers, **self.helpers}
        for function in self._functions():
            for call in _calls(function):
                helper = known.get(_name(call.func))
                if helper is not None and len(call.args) > helper.position:
                    yield from _passed(helper, call, function)

    def _functions(self) -> list[ast.FunctionDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]

    def _raised(self, function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
        parameters = [each.arg for each in function.args.args]
        for call in _calls(function):
            made = _error(call)
            if made is None:
                continue
            code, message = made
            texts = list(_texts(message, function))
            used = [name for name in parameters if any(f"{{{name}}}" in text for text in texts)]
            code_name = code.id if isinstance(code, ast.Name) else None
            passed = next((name for name in used if _is_whole(name, texts) or code_name in parameters), None)
            if passed is not None:
                where = parameters.index(code_name) if code_name in parameters else _code(code)
                if where is not None:
                    self.helpers[function.name] = _Helper(
                        code=where, position=parameters.index(passed), texts=texts, parameter=passed
                    )
            elif (known := _code(code)) is not None:
                yield from ((known, text) for text in texts)


def _is_whole(name: str, texts: list[str]) -> bool:
    """Whether the argument is the message, or its end: a part in the middle is a value like any other."""
    return any(text.endswith(f"{{{name}}}") and (text == f"{{{name}}}" or name in _PARTS) for text in texts)


_PARTS = ("reason", "what", "message", "wrong")
"""Names of parameters that hold a part of a sentence."""


def _passed(helper: _Helper, call: ast.Call, function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    code = helper.code if isinstance(helper.code, str) else _code(call.args[helper.code])
    if code is None:
        return
    for part in _texts(call.args[helper.position], function):
        for text in helper.texts:
            yield code, text.replace(f"{{{helper.parameter}}}", part)


def _calls(function: ast.FunctionDef) -> Iterator[ast.Call]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Call))


def _error(call: ast.Call) -> tuple[ast.expr, ast.expr] | None:
    """Code and message of a call that makes an error."""
    name = _name(call.func)
    if len(call.args) > 1 and _name(call.args[0]) in _CODES:
        # A method that makes an error of the class that it is passed.
        return ast.Constant(_CODES[_name(call.args[0])]), call.args[1]
    if name in {_ENGINE, errors.EngineRequestFailed.__name__}:
        return (call.args[0], call.args[1]) if len(call.args) > 1 else None
    if name in _CODES and call.args:
        return ast.Constant(_CODES[name]), call.args[0]
    return None


def _code(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _texts(node: ast.expr, function: ast.FunctionDef) -> Iterator[str]:
    """What an expression may say; nothing where it is no text of ours."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(_part(each) for each in node.values)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body, function)
        yield from _texts(node.orelse, function)
    elif isinstance(node, ast.Subscript):
        yield from _texts(node.value, function)
    elif isinstance(node, ast.Name):
        if node.id in {each.arg for each in function.args.args}:
            yield f"{{{node.id}}}"
            return
        assigned = [
            each.value
            for each in ast.walk(function)
            if isinstance(each, ast.Assign) and any(_name(target) == node.id for target in each.targets)
        ]
        for value in assigned[:_MOST_TEXTS]:
            yield from _texts(value, function)


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.FormattedValue):
        return f"{{{_placeholder(node.value)}}}"
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _placeholder(node: ast.expr) -> str:
    """A name for the value: that of the variable or attribute that it comes from."""
    if isinstance(node, ast.Attribute) and node.attr == "__name__":
        return _placeholder(node.value)
    if isinstance(node, ast.Name | ast.Attribute):
        return _name(node).lower().strip("_")
    if isinstance(node, ast.Subscript):
        key = _code(node.slice)
        return _placeholder(node.value) if key is None else key
    if isinstance(node, ast.Call):
        owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        return _placeholder(node.args[-1] if node.args else owner)
    if isinstance(node, ast.BoolOp):
        return _placeholder(node.values[0])
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    return names[0] if names else "…"


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    sys.exit(main())
