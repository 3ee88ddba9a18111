"""Engine plugins: Python packages of the operator's that add support for more ONNX operators.

The setting ``TUNESMITH_ENGINE_PLUGINS`` names packages installed in the engine's environment. Each is imported when the
engine starts, and in each of its build processes, and its ``register(registry)`` is called. Plugins are code of whoever
runs the service; uploaded code is never run.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from tuner.engines.protocol.serving import EngineFailure

VARIABLE = "TUNESMITH_ENGINE_PLUGINS"
_SHOWN_BY_FRONTEND = "tvm_custom"
"""Attribute that TVM's importers themselves add to a node."""


class PluginError(Exception):
    """A plugin cannot be loaded; the message names it and the cause. The engine does not start without it."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    name: str
    version: str
    """``__version__`` of the package, for display."""
    digest: str
    """sha256 of the package's files: a changed file makes another plugin."""


@dataclass(frozen=True, kw_only=True)
class Converter:
    """How an engine imports one ONNX operator."""

    plugin: str
    domain: str
    operator: str
    convert: Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator missing from the engine's TVM; see the engine for the signatures of the functions."""

    plugin: str
    name: str
    compute: Callable[..., Any]
    schedule: Callable[..., Any] | None


@dataclass(kw_only=True)
class Registry:
    """Registry that plugins register with. ``engine`` is ``relay`` (TVM 0.19) or ``relax`` (TVM 0.27)."""

    engine: str
    plugins: list[Plugin] = field(default_factory=list)
    converters: dict[tuple[str, str], Converter] = field(default_factory=dict)
    """Converters by domain and operator; the domain of ONNX's own operators is empty."""
    operators: dict[str, Operator] = field(default_factory=dict)
    call: Callable[..., Any] = field(default=lambda *_, **__: None)
    """``call(name, inputs, attributes)``: expression that applies a registered operator; set by the engine."""
    _loading: str = ""

    def add_converter(self, operator: str, convert: Callable[..., Any], *, domain: str = "") -> None:
        """Import nodes of this type with ``convert(inputs, attributes)``, which returns one or more expressions.

        ``inputs`` are the engine's expressions, ``attributes`` a mapping of the node's attributes (strings as ``str``).
        An operator of ONNX itself may be replaced, for every opset. Raises PluginError if the operator already has a
        converter.
        """
        domain = "" if domain == "ai.onnx" else domain
        taken = self.converters.get((domain, operator))
        if taken is not None:
            raise PluginError(f"{taken.plugin} and {self._loading} both convert {shown(domain, operator)}")
        self.converters[domain, operator] = Converter(
            plugin=self._loading, domain=domain, operator=operator, convert=convert
        )

    def add_operator(self, name: str, compute: Callable[..., Any], schedule: Callable[..., Any] | None = None) -> None:
        """Add an operator by its tensor expression, for converters to ``call``.

        ``name`` is ``namespace.name``; ``compute(attributes, *tensors)`` returns its output as a ``tvm.te.Tensor``.
        Without a ``schedule`` the engine uses its own for elementwise operators. Raises PluginError.
        """
        if "." not in name.strip("."):
            raise PluginError(f"{self._loading}: an operator name must be namespace.name, not {name!r}")
        if name in self.operators:
            raise PluginError(f"{self.operators[name].plugin} and {self._loading} both add the operator {name}")
        self.operators[name] = Operator(plugin=self._loading, name=name, compute=compute, schedule=schedule)

    @property
    def digest(self) -> str | None:
        """Digest of all plugins together; None without any."""
        if not self.plugins:
            return None
        facts = sorted((plugin.name, plugin.digest) for plugin in self.plugins)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def version(self, tvm: str) -> str:
        """Return the TVM version with a suffix that identifies the plugins: ``0.19.0+plugins.1f2e3d4c``.

        It is part of the toolchain's identity, so records and artifacts are never shared between versions of a plugin.
        """
        return tvm if self.digest is None else f"{tvm}+plugins.{self.digest[:8]}"

    @property
    def described(self) -> list[dict[str, str]]:
        """Plugins as listed in ``hello``."""
        return [{"name": each.name, "version": each.version, "digest": each.digest} for each in self.plugins]


def load(registry: Registry, names: str | None = None) -> None:
    """Import and register the packages named by the setting, or by ``names`` in the same form. Raises PluginError."""
    text = os.environ.get(VARIABLE, "") if names is None else names
    for name in dict.fromkeys(part.strip() for part in text.split(",") if part.strip()):
        registry._loading = name
        try:
            module = importlib.import_module(name)
            register = module.register
        except Exception as error:
            raise PluginError(f"the plugin {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
        try:
            register(registry)
        except PluginError:
            raise
        except Exception as error:
            raise PluginError(f"the plugin {name!r} failed to register: {type(error).__name__}: {error}") from error
        version = str(getattr(module, "__version__", "unknown"))
        registry.plugins.append(Plugin(name=name, version=version, digest=_digest(module)))


def convert(converter: Converter, inputs: list[Any], attributes: Mapping[str, Any]) -> Any:
    """Call a plugin's converter for a node, with the importer's attributes converted to plain values.

    Raises EngineFailure ``plugin_failed`` for whatever it raises.
    """
    given = {name: _text(value) for name, value in attributes.items() if name != _SHOWN_BY_FRONTEND}
    try:
        return converter.convert(inputs, given)
    except EngineFailure:
        raise
    except Exception as error:
        operator = shown(converter.domain, converter.operator)
        message = f"the plugin {converter.plugin!r} cannot convert {operator}: {type(error).__name__}: {error}"
        raise EngineFailure("plugin_failed", message[:1500], details={"plugin": converter.plugin}) from error


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [_text(item) for item in value] if isinstance(value, list | tuple) else value


def shown(domain: str, operator: str) -> str:
    return f"{domain}::{operator}" if domain else operator


def _digest(module: ModuleType) -> str:
    source = Path(module.__file__ or "")
    package = hasattr(module, "__path__")
    files = sorted(path for path in source.parent.rglob("*") if _counts(path)) if package else [source]
    content = hashlib.sha256()
    for path in files:
        content.update(f"{path.relative_to(source.parent)}\0{path.stat().st_size}\0".encode())
        content.update(path.read_bytes())
    return content.hexdigest()


def _counts(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts
