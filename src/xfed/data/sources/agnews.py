"""AG News (Zhang et al., 2015): titles and descriptions of news articles."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from pydantic import Field

from xfed.components import BaseSettings
from xfed.data.card import DataCard
from xfed.data.dataset import Published, dataset
from xfed.data.raw.cache import Contents
from xfed.data.raw.containers import Container
from xfed.data.raw.download import Download
from xfed.data.raw.reasons import reason
from xfed.data.raw.source import PAPER_CLIENTS, PublishedSource
from xfed.errors import InputError
from xfed_runtime.text import Vocabulary

ADDRESS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
CLASSES = ("World", "Sports", "Business", "Sci/Tech")
JOINED_HEADER = ["label", "text"]
TITLED_HEADER = ["class index", "title", "description"]


@dataclass(frozen=True)
class Article:
    """One row: class from 0, text (title and description joined), and the title where the file keeps it apart."""

    label: int
    text: str
    title: str | None = None


@dataset("agnews")
class AgNews(PublishedSource):
    """127,600 news articles in 4 classes, title and description joined (Zhang et al., 2015).

    Words become ids of a vocabulary built from the published training file; 0 pads and is to be masked.
    """

    class Settings(BaseSettings):
        max_length: int = Field(200, ge=2, description="tokens per article, <cls> included; longer ones are cut")
        vocabulary: int = Field(32_000, ge=4, description="largest number of token ids, special ones included")
        text: Literal["joined", "title"] = Field(
            "joined", description="title and description, or the title alone (three-column files only)"
        )

    settings: Settings
    recommended = MappingProxyType({"model": "transformer", **PAPER_CLIENTS, "epochs": 1, "rounds": 100})
    forms = ("ag_news", "ag_news_csv", "ag_news_csv.tar.gz")
    downloads = (
        Download(f"{ADDRESS}train.csv", "b1a00f826fdfbd249f79597b59e1dc12"),
        Download(f"{ADDRESS}test.csv", "d52ea96a97a2d943681189a97654912d"),
    )
    published = Published(train=120_000, test=7_600, classes=len(CLASSES))

    def outline(self) -> DataCard:
        """Give the length and the largest vocabulary that the settings allow."""
        shape, tokens = (self.settings.max_length,), self.settings.vocabulary
        return DataCard(self.name, "", "text", shape, CLASSES, scale=1.0, mean=0.0, std=1.0, tokens=tokens)

    def decode(self, raw: Container) -> Contents:
        """Read both files, each in whatever form it is; build the vocabulary from the training file."""
        train, test = (self._part(raw, part) for part in ("train", "test"))
        labels = [article.label for article in (*train, *test)]
        texts = [self._text(article) for article in (*train, *test)]
        vocabulary = Vocabulary.build(texts[: len(train)], self.settings.vocabulary)
        rows = vocabulary.encode(texts, self.settings.max_length)
        return Contents(
            shape=rows.shape,
            blocks=[rows],
            labels=np.asarray(labels, dtype=np.int64),
            classes=CLASSES,
            train=len(train),
            dtype="int32",
            kind="text",
            vocabulary=vocabulary.words,
        )

    def _part(self, raw: Container, part: str) -> list[Article]:
        names = [name for name in raw.names() if re.fullmatch(rf"(data/)?{part}(-\d+-of-\d+)?\.(csv|parquet)", name)]
        tables = [name for name in names if name.endswith(".csv")] or names
        if not tables:
            raise InputError(f"{str(raw.path)!r} has no {part}.csv and no {part}-*.parquet")
        articles: list[Article] = []
        for name in tables:
            read = _csv_rows if name.endswith(".csv") else _parquet_rows
            articles += read(raw.get(name), raw.where(name))
        if not articles:
            raise InputError(f"{raw.where(tables[0])!r} has no rows")
        if self.settings.text == "title" and articles[0].title is None:
            raise InputError(
                f"agnews.text is 'title', but {raw.where(tables[0])!r} has no titles of their own; allowed: joined"
            )
        return articles

    def _text(self, article: Article) -> str:
        return article.title or "" if self.settings.text == "title" else article.text


def _csv_rows(content: bytes, where: str) -> Iterator[Article]:
    """Read class 1 to 4, title and description; or, where the header says so, label 0 to 3 and text."""
    reader = csv.reader(io.StringIO(_decoded(content, where), newline=""))
    joined = False
    try:
        for count, row in enumerate(reader):
            if count == 0 and (header := [name.strip().lower() for name in row]) in (JOINED_HEADER, TITLED_HEADER):
                joined = header == JOINED_HEADER
                continue
            spot = f"line {reader.line_num} of {where!r}"
            if len(row) != (2 if joined else 3):
                wanted = "2: label, text" if joined else "3: class, title, description"
                raise InputError(f"{spot} has {len(row)} columns; allowed: {wanted}")
            label = _label(row[0], 0 if joined else 1, spot)
            yield Article(label, row[1]) if joined else Article(label, f"{row[1]} {row[2]}", row[1])
    except csv.Error as error:
        raise InputError(f"line {reader.line_num} of {where!r} is not CSV: {reason(error)}") from None


def _parquet_rows(content: bytes, where: str) -> Iterator[Article]:
    """Read the columns `text` and `label` (0 to 3)."""
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{where!r} is not a whole Parquet file: {reason(error)}") from None
    if not {"text", "label"} <= set(table.column_names):
        raise InputError(f"{where!r} has columns {', '.join(table.column_names)}; allowed: text, label")
    pairs: Sequence[tuple[object, object]] = list(
        zip(table["label"].to_pylist(), table["text"].to_pylist(), strict=True)
    )
    for number, (label, text) in enumerate(pairs):
        yield Article(_label(str(label), 0, f"row {number} of {where!r}"), str(text))


def _label(text: str, first: int, spot: str) -> int:
    last = first + len(CLASSES) - 1
    if not text.isdecimal() or not first <= int(text) <= last:
        raise InputError(f"{spot} has the class {text!r:.40}; allowed: {first} to {last}")
    return int(text) - first


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where!r} is not UTF-8 text: {error.reason} at byte {error.start}") from None
