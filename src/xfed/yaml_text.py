"""YAML as people write it: plain values only, and a key that stands twice is an error and not the last one's."""

from __future__ import annotations

from typing import Any

import yaml

from xfed.errors import InputError

LARGEST = 2**20
"""Characters: settings are read whole, and nobody writes more."""


class _Strict(yaml.SafeLoader):
    """Refuses what YAML would take silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a section, unless a key stands there twice."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int | float | bool):
                if key in seen:
                    line = key_node.start_mark.line + 1
                    raise yaml.constructor.ConstructorError(None, None, f"{key!r} stands twice, again in line {line}")
                seen.add(key)
        return super().construct_mapping(node, deep)


def parse(text: str, what: str) -> Any:
    """Read YAML; `what` names where it stands in the sentence that says what is wrong with it."""
    if len(text) > LARGEST:
        raise InputError(f"{what} is too long: {len(text):,} characters; allowed: {LARGEST:,}")
    try:
        return yaml.load(text, _Strict)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise InputError(f"{what} is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputError(f"{what} is not YAML that can be used: it is nested too deeply") from None
