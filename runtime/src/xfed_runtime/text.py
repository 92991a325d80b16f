"""From text to rows of token ids: a tokenizer and a vocabulary in plain Python and NumPy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

PADDING, CLS, UNKNOWN = 0, 1, 2
SPECIAL = ("<pad>", "<cls>", "<unk>")
"""The first three words of every vocabulary: what fills a row up, what starts it, what stands for other words."""

TOKEN = re.compile(r"\w+|[^\w\s]")


def tokenize(text: str) -> list[str]:
    """Split lower-cased text into words (letters, digits, underscores) and single other signs."""
    return TOKEN.findall(text.lower())


@dataclass(frozen=True)
class Vocabulary:
    """Words by id: the three special ones, then the known ones."""

    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def build(cls, texts: Iterable[str], size: int) -> Vocabulary:
        """Take the most frequent words, equally frequent ones by the alphabet; `size` counts the special ones."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(tokenize(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls((*SPECIAL, *ranked[: size - len(SPECIAL)]))

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """Give the id of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def encode(self, texts: Sequence[str], length: int) -> NDArray[np.int32]:
        """Make one row per text: `<cls>`, then the tokens cut to `length` in all, then padding."""
        rows = np.full((len(texts), length), PADDING, dtype=np.int32)
        rows[:, 0] = CLS
        known = self.ids
        for row, text in zip(rows, texts, strict=True):
            found = [known.get(token, UNKNOWN) for token in tokenize(text)[: length - 1]]
            row[1 : 1 + len(found)] = found
        return rows
