"""Methods, data sets and models by name, with the settings each takes.

A component is a class with a nested `Settings` model. The registry finds built-in ones (every module of a
package), installed ones (entry points `xfed.methods`, `xfed.datasets`, `xfed.models`) and those of plug-in
files. Its settings become command-line options, documentation and table columns by themselves.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from xfed.errors import InputError, unknown


class BaseSettings(BaseModel):
    """Validated, immutable settings; an unknown key is an error, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Component:
    """Something with a name, one line of description and settings."""

    name: ClassVar[str] = ""

    class Settings(BaseSettings):
        pass

    def __init__(self, settings: Any = None) -> None:
        self.settings = self.Settings() if settings is None else settings

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the docstring: what `xfed methods` and its like print."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @classmethod
    def resolve(cls, values: Mapping[str, Any]) -> Any:
        """Validate settings given by a user."""
        return validate(cls.Settings, values, prefix=f"{cls.name}.")


C = TypeVar("C", bound=Component)
M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], values: Mapping[str, Any], prefix: str = "") -> M:
    """Build a settings model, or say in one sentence which value is wrong and what is allowed."""
    for key in values:
        if key not in model.model_fields:
            raise unknown("setting", f"{prefix}{key}", (prefix + name for name in model.model_fields))
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = prefix + ".".join(str(part) for part in first["loc"][:1])
        what = first["msg"].removeprefix("Value error, ")
        what = what[:1].lower() + what[1:]
        given = f" is {first['input']!r}" if first["loc"] else ""
        raise InputError(f"{where or 'settings'}{given}: {what}" if given else what) from None


class Registry(Generic[C]):
    """Components of one kind, in the order in which they were registered."""

    def __init__(self, kind: str, base: type[C], package: str) -> None:
        self.kind, self.base, self.package = kind, base, package
        self._found: dict[str, type[C]] = {}
        self._discovered = False

    def register(self, name: str) -> Callable[[type[C]], type[C]]:
        """Decorate a class to make it known under `name`."""

        def add(component: type[C]) -> type[C]:
            present = self._found.get(name)
            if present is not None and present.__module__ != component.__module__:
                raise InputError(f"{self.kind} {name!r} exists already, from {present.__module__}; use another name")
            component.name = name
            self._found[name] = component
            return component

        return add

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self.package}.{module.name}")
        for point in entry_points(group=f"xfed.{self.kind}s"):
            component = point.load()
            if point.name not in self._found:
                self.register(point.name)(component)

    def get(self, name: str) -> type[C]:
        """Look a component up; an unknown name is told with what there is."""
        self._discover()
        if name not in self._found:
            raise unknown(self.kind, name, self._found)
        return self._found[name]

    def __contains__(self, name: str) -> bool:
        self._discover()
        return name in self._found

    def __iter__(self) -> Iterator[type[C]]:
        self._discover()
        return iter(self._found.values())


def load_plugins(paths: Iterable[str | Path]) -> None:
    """Import users' files, each once per process; what they register is then known like any built-in."""
    for path in paths:
        _load_plugin(Path(path).resolve())


@cache
def _load_plugin(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"plug-in file {str(path)!r} does not exist")
    module_name = f"xfed_plugin_{sha256(path.read_bytes()).hexdigest()[:16]}"
    if module_name in sys.modules:
        return module_name
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"plug-in file {str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except Exception as error:
        del sys.modules[module_name]
        raise InputError(f"plug-in file {str(path)!r} does not import: {type(error).__name__}: {error}") from error
    return module_name
