"""Methods, data sets, models and engines by name, with the settings each takes.

A component is a class with a nested `Settings` model. The registry finds built-in ones (every module of a
package), installed ones (entry points `xfed.methods`, `xfed.datasets`, `xfed.models`, `xfed.engines`) and those of
plug-in files. Its settings become command-line options, documentation and table columns by themselves.
"""

from __future__ import annotations

import importlib
import linecache
import pkgutil
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from xfed.errors import InputError, unknown


class BaseSettings(BaseModel):
    """Validated, immutable settings; an unknown key is an error, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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
        raise told(error, prefix) from None


def told(error: ValidationError, prefix: str = "") -> InputError:
    """Turn what pydantic found into one sentence about the first thing that is wrong."""
    first = error.errors()[0]
    where = prefix + ".".join(str(part) for part in first["loc"][:1])
    what = first["msg"].removeprefix("Value error, ")
    what = what[:1].lower() + what[1:]
    return InputError(f"{where} is {first['input']!r}: {what}" if first["loc"] else what)


class Registry(Generic[C]):
    """Components of one kind, in the order in which they were registered."""

    every: ClassVar[list[Registry[Any]]] = []

    def __init__(self, kind: str, base: type[C], package: str) -> None:
        self.kind, self.base, self.package = kind, base, package
        self._found: dict[str, type[C]] = {}
        self._discovered = False
        Registry.every.append(self)

    def register(self, name: str) -> Callable[[type[C]], type[C]]:
        """Decorate a class to make it known under `name`."""

        def add(component: type[C]) -> type[C]:
            if not (isinstance(component, type) and issubclass(component, self.base)):
                what = f"{type(component).__name__} {getattr(component, '__name__', repr(component))}"
                raise InputError(f"{self.kind} {name!r} is the {what}; allowed: a subclass of {self.base.__name__}")
            present = self._found.get(name)
            if present is not None and present.__module__ != component.__module__:
                raise InputError(f"{self.kind} {name!r} exists already, from {present.__module__}; use another name")
            component.name = name
            self._found[name] = component
            return component

        return add

    def forget(self, module: str) -> None:
        """Drop what a module registered."""
        self._found = {name: each for name, each in self._found.items() if each.__module__ != module}

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True  # first, since what is imported may look components up
        try:
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self.package}.{module.name}")
            for point in entry_points(group=f"xfed.{self.kind}s"):
                component = point.load()
                if point.name not in self._found:
                    self.register(point.name)(component)
        except BaseException:
            self._discovered = False
            raise

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
    for path in map(Path, paths):
        try:
            source = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"plug-in file {str(path)!r} does not exist") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"plug-in file {str(path)!r} cannot be read: {error}") from None
        load_plugin(path.name, source, str(path))


def load_plugin(name: str, source: str, where: str | None = None) -> None:
    """Execute a plug-in from its source, wherever that came from; the same source counts once per process."""
    module_name = _module_name(source)
    if module_name in sys.modules:
        return
    file = where or f"<plug-in {name}>"
    module = types.ModuleType(module_name)
    module.__file__ = file
    sys.modules[module_name] = module
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # for tracebacks
    try:
        exec(compile(source, file, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        unload_plugin(source)
        if isinstance(error, InputError):
            raise InputError(f"plug-in file {file!r}: {error}") from None
        if isinstance(error, SystemExit):
            raise InputError(
                f"plug-in file {file!r} calls sys.exit({error.code!r}) when it is imported; "
                "put what is not for import under: if __name__ == '__main__'"
            ) from None
        raise InputError(f"plug-in file {file!r} does not import: {type(error).__name__}: {error}") from error


def unload_plugin(source: str) -> None:
    """Forget a plug-in and what it registered, so that a mended one can take its names."""
    sys.modules.pop(_module_name(source), None)
    for registry in Registry.every:
        registry.forget(_module_name(source))


def _module_name(source: str) -> str:
    return f"xfed_plugin_{sha256(source.encode()).hexdigest()[:16]}"
