"""Components: built in, installed as entry points, and what bad ones are told."""

from __future__ import annotations

from pathlib import Path

import pytest

import xfed.components as module
from xfed import InputError
from xfed.algorithms.fedper import FedPer
from xfed.components import Component, Registry, load_plugins


class Point:
    """Stands for an installed entry point."""

    name = "installed"

    def load(self) -> type[Component]:
        class Installed(FedPer):
            """A method that came with another package."""

        return Installed


def test_installed_entry_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(module, "entry_points", lambda group: asked.append(group) or [Point()])
    registry: Registry[Component] = Registry("method", Component, "xfed.algorithms")
    assert registry.get("installed").summary() == "A method that came with another package."
    assert asked == ["xfed.methods"]


def test_a_component_that_cannot_be_imported_is_told_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(group: str) -> list[Point]:
        raise ImportError("half installed")

    monkeypatch.setattr(module, "entry_points", broken)
    registry: Registry[Component] = Registry("method", Component, "xfed.algorithms")
    for _ in range(2):
        with pytest.raises(ImportError, match="half installed"):
            registry.get("installed")
    monkeypatch.setattr(module, "entry_points", lambda group: [Point()])
    assert "installed" in registry


def test_unknown_names_get_a_hint() -> None:
    registry: Registry[Component] = Registry("method", Component, "xfed.report")
    registry.register("fedper")(FedPer)
    with pytest.raises(InputError, match=r"unknown method 'fedpar' \(did you mean fedper\?\); allowed: fedper"):
        registry.get("fedpar")
    registry.register("fedper")(FedPer)  # the same once more is no conflict
    with pytest.raises(InputError, match="'fedper' exists already"):
        registry.register("fedper")(type("Other", (Component,), {"__module__": "elsewhere"}))


@pytest.mark.parametrize(
    ("code", "said"),
    [("1 / 0", "ZeroDivisionError: division by zero"), ("import nowhere_to_be_found", "No module named")],
)
def test_plugin_that_does_not_import(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "bad.py").write_text(code)
    with pytest.raises(InputError, match=rf"bad\.py' does not import: .*{said}"):
        load_plugins([tmp_path / "bad.py"])
