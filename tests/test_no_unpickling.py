"""Nothing reads files that could run a stranger's code: safetensors, JSON, plain YAML, Parquet and ONNX alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from xfed import InputError, yaml_text

ROOT = Path(__file__).parents[1]
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "runtime" / "src").rglob("*.py")]
FORBIDDEN = {
    "torch": {"load", "jit.load"},
    "pickle": {"load", "loads"},
    "joblib": {"load"},
    "dill": {"load", "loads"},
    "cloudpickle": {"load", "loads"},
    "marshal": {"load", "loads"},
    "shelve": {"open"},
    "yaml": {"load", "load_all", "unsafe_load", "full_load"},
    "pandas": {"read_pickle"},
    "pd": {"read_pickle"},
}
HARMLESS = {
    "src/xfed/data/raw/pickles.py": {"pickle.Unpickler"},
    "src/xfed/yaml_text.py": {"yaml.load"},
}
"""CIFAR is published as pickles: their reader knows a handful of names, each of which stands for an object of ours.
YAML is read by a safe loader of ours, which minds keys that stand twice."""


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unpicklers(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = dotted(node) if isinstance(node, ast.Attribute) else ""
        module, _, rest = name.partition(".")
        if rest in FORBIDDEN.get(module, ()) or name.endswith("pickle.Unpickler"):
            yield name
        if isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN:
            yield from (f"{node.module}.{each.name}" for each in node.names if each.name in FORBIDDEN[node.module])
        allows = isinstance(node, ast.keyword) and node.arg == "allow_pickle"
        if allows and not (isinstance(node.value, ast.Constant) and node.value.value is False):
            yield "allow_pickle"
        if isinstance(node, ast.Call) and dotted(node.func) == "eval":
            yield "eval"


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 200


@pytest.mark.parametrize(
    "code", ["import torch\ntorch.load(x)", "from pickle import loads", "np.load(x, allow_pickle=y)"]
)
def test_it_would_be_found(tmp_path: Path, code: str) -> None:
    (tmp_path / "x.py").write_text(code)
    assert list(unpicklers(tmp_path / "x.py"))


def test_nothing_unpickles() -> None:
    found = {str(path.relative_to(ROOT)): set(unpicklers(path)) for path in SOURCES}
    assert {name: names for name, names in found.items() if names} == HARMLESS


def test_the_loader_of_yaml_is_a_safe_one() -> None:
    assert issubclass(yaml_text._Strict, yaml.SafeLoader)
    with pytest.raises(InputError, match="could not determine a constructor"):
        yaml_text.parse("a: !!python/object/apply:os.getcwd []", "settings")
