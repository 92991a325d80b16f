"""From text to token ids, with numpy alone."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np

import xfed_runtime.text
from xfed_runtime.text import Vocabulary, tokenize


def test_tokens() -> None:
    assert tokenize("Wall St. Bears: don't  panic\\now! (50%)") == (
        ["wall", "st", ".", "bears", ":", "don", "'", "t", "panic", "\\", "now", "!", "(", "50", "%", ")"]
    )
    assert tokenize("Zürich\n\tça_va") == ["zürich", "ça_va"]
    assert tokenize("") == []


def test_vocabulary_by_frequency_then_by_the_alphabet() -> None:
    vocabulary = Vocabulary.build(["b b c c a", "c d"], size=6)
    assert vocabulary.words == ("<pad>", "<cls>", "<unk>", "c", "b", "a")
    assert len(vocabulary) == 6
    assert Vocabulary.build(["b a"], size=100).words == ("<pad>", "<cls>", "<unk>", "a", "b")


def test_rows_start_with_cls_are_cut_and_padded() -> None:
    vocabulary = Vocabulary(("<pad>", "<cls>", "<unk>", "oil", "falls"))
    rows = vocabulary.encode(["Oil falls", "oil price falls falls falls", ""], length=4)
    assert rows.dtype == np.int32
    assert rows.tolist() == [[1, 3, 4, 0], [1, 3, 2, 4], [1, 0, 0, 0]]


def test_special_words_cannot_be_written_in_a_text() -> None:
    vocabulary = Vocabulary.build(["<pad> <cls>"], size=100)
    assert vocabulary.encode(["<cls>"], 5).tolist() == [
        [1, vocabulary.ids["<"], vocabulary.ids["cls"], vocabulary.ids[">"], 0]
    ]


def test_needs_nothing_but_numpy() -> None:
    tree = ast.parse(Path(xfed_runtime.text.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in imported if name and name.split(".")[0] in {"torch", "xfed", "pydantic"}]
