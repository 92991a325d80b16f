"""Small JSON files that describe something; one that cannot be used is refused with one sentence."""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, ClassVar, Self


class Document:
    """What a data class needs to live in a JSON file; lists in the file are tuples in the object.

    `called` names the file in sentences, `refused` is the error that they are told by.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    called: ClassVar[str]
    refused: ClassVar[type[ValueError]]

    @classmethod
    def check(cls, value: Any) -> None:
        """Refuse decoded JSON that has too much, or too little."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Make it from decoded JSON; anything unknown or out of range is refused."""
        cls.check(value)
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in value.items()}
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        """Give what is set, ready to be encoded."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if self._is_set(field)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def _is_set(self, field: Field[Any]) -> bool:
        return field.default is MISSING or getattr(self, field.name) not in (None, "")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read it from its file."""
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except cls.refused as error:
            raise cls.refused(f"{cls.called} {str(path)!r}: {error}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise cls.refused(f"{cls.called} {str(path)!r} cannot be read: {error}") from None

    def write(self, path: Path) -> None:
        """Write it to a file."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
