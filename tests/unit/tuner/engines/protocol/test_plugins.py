from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.engines.protocol import plugins
from tuner.engines.protocol.plugins import PluginError, Registry
from tuner.engines.protocol.serving import EngineFailure


def package(folder: Path, name: str, source: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(f"__version__ = '1.0'\n{source}")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are imported from, and forgotten again."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


REGISTERS = """
def register(registry):
    registry.add_converter("Twist", lambda inputs, attributes: (inputs, attributes), domain="my.domain")
    registry.add_operator("my.twist", lambda attributes, data: data)
"""


def loaded(names: str) -> Registry:
    registry = Registry(engine="relay")
    plugins.load(registry, names)
    return registry


def test_nothing_is_loaded_without_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(plugins.VARIABLE, raising=False)
    registry = Registry(engine="relay")
    plugins.load(registry)
    assert (registry.plugins, registry.digest, registry.version("0.19.0")) == ([], None, "0.19.0")


def test_a_package_registers_converters_and_operators(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(site, "twisting", REGISTERS)
    monkeypatch.setenv(plugins.VARIABLE, " twisting, twisting,")
    registry = Registry(engine="relay")
    plugins.load(registry)
    assert [(plugin.name, plugin.version) for plugin in registry.plugins] == [("twisting", "1.0")]
    converter = registry.converters["my.domain", "Twist"]
    assert converter.plugin == "twisting"
    assert plugins.convert(converter, [1], {"a": 2}) == ([1], {"a": 2})
    assert registry.operators["my.twist"].schedule is None


def test_the_version_changes_with_any_file_of_a_package(site: Path) -> None:
    package(site, "twisting", REGISTERS)
    first = loaded("twisting")
    assert loaded("twisting").version("0.19.0") == first.version("0.19.0")
    assert first.version("0.19.0").startswith("0.19.0+plugins.")
    (site / "twisting" / "table.bin").write_bytes(b"\x00")
    assert loaded("twisting").version("0.19.0") != first.version("0.19.0")


def test_the_order_of_plugins_does_not_matter(site: Path) -> None:
    package(site, "twisting", REGISTERS)
    package(site, "other", "def register(registry): pass\n")
    assert loaded("other,twisting").digest == loaded("twisting,other").digest != loaded("twisting").digest


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import nothing_of_that_name\n", "nothing_of_that_name"),
        ("", "register"),
        ("def register(registry): raise OSError('no licence')\n", "no licence"),
        ("def register(registry): registry.add_operator('twist', print)\n", "namespace.name"),
        (REGISTERS + "    registry.add_operator('my.twist', print)\n", "both"),
        ("raise SystemError('native part')\n", "native part"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_named(site: Path, source: str, told: str) -> None:
    package(site, "twisting", source)
    with pytest.raises(PluginError, match=told) as caught:
        loaded("twisting")
    assert "twisting" in str(caught.value)


def test_two_plugins_for_one_operator_are_refused(site: Path) -> None:
    package(site, "twisting", REGISTERS)
    package(site, "turning", REGISTERS)
    with pytest.raises(PluginError, match=r"twisting and turning both convert my\.domain::Twist"):
        loaded("twisting,turning")


def test_a_failing_converter_is_the_plugins_failure(site: Path) -> None:
    source = REGISTERS.replace("(inputs, attributes)", "attributes['absent']")
    package(site, "twisting", source)
    converter = loaded("twisting").converters["my.domain", "Twist"]
    with pytest.raises(EngineFailure) as caught:
        plugins.convert(converter, [], {})
    assert caught.value.code == "plugin_failed"
    assert caught.value.details == {"plugin": "twisting"}


def test_a_failure_that_a_converter_means_stays_as_it_is() -> None:
    def refuse(_: Any, __: Any) -> Any:
        raise EngineFailure("import_failed", "only two dimensions")

    converter = plugins.Converter(plugin="p", domain="", operator="Twist", convert=refuse)
    with pytest.raises(EngineFailure, match="only two dimensions") as caught:
        plugins.convert(converter, [], {})
    assert caught.value.code == "import_failed"
