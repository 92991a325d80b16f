"""What there is of each data set here: its state, how to get it, and whether it is the published one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xfed.data.dataset import Dataset, DatasetSource, Published, datasets
from xfed.data.raw.cache import read_meta
from xfed.data.raw.containers import Container
from xfed.data.raw.download import md5
from xfed.data.raw.source import DecodedSource, PublishedSource
from xfed.errors import InputError

State = Literal["ready", "found", "missing"]


@dataclass(frozen=True)
class Status:
    """What there is of one data set.

    ready: a load takes no time (decoded, or part of an installed package). found: raw files are there, the first
    load decodes them. missing: the first load downloads it, or `note` says what to do.
    """

    name: str
    state: State
    where: Path | None = None
    decoded: Path | None = None
    bytes: int | None = None
    samples: int | None = None
    classes: int | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that was checked: what it is here, and what it should be."""

    what: str
    found: str
    expected: str

    @property
    def ok(self) -> bool:
        """Tell whether it is as it should be."""
        return self.found == self.expected


@dataclass(frozen=True)
class Check:
    """All findings on one data set."""

    name: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Tell whether everything is as published and undamaged."""
        return all(finding.ok for finding in self.findings)


def list_status() -> list[Status]:
    """Look at every data set there is, without loading any."""
    return [status(source.name) for source in datasets]


def status(name: str, settings: Mapping[str, Any] | None = None) -> Status:
    """Look at one data set, without loading it; unknown figures are None."""
    try:
        source = _source(name, settings)
    except InputError as error:
        if name not in datasets:
            raise
        return Status(name, "missing", note=str(error))
    if source.elsewhere is not None:
        return Status(name, "missing", note=source.elsewhere)
    if not isinstance(source, DecodedSource):
        samples, classes = _known(source)
        return Status(name, "ready", samples=samples, classes=classes, note="part of an installed package")
    raw = source.find()
    if raw is None:
        return _missing(source)
    origin = source.origin(raw)
    try:
        meta = read_meta(origin.folder())
    except InputError:
        return Status(name, "found", raw.path, bytes=origin.bytes, note="the first load decodes it")
    return Status(
        name,
        "ready",
        where=raw.path,
        decoded=origin.folder(),
        bytes=origin.bytes,
        samples=meta.samples,
        classes=len(meta.classes),
        checksums={"sha256": meta.sha256},
    )


def fetch(name: str, settings: Mapping[str, Any] | None = None) -> Status:
    """Make a data set ready: download it where it is missing, decode it."""
    _source(name, settings).load()
    return status(name, settings)


def check(name: str, settings: Mapping[str, Any] | None = None) -> Check:
    """Read all of a data set and compare it with what is published; nothing is downloaded."""
    source = _source(name, settings)
    raw = source.find() if isinstance(source, DecodedSource) else None
    if isinstance(source, DecodedSource) and raw is None:
        raise InputError(f"data set {name!r} is not here; {_missing(source).note}")
    return Check(name, tuple(_findings(source, raw)))


def _findings(source: DatasetSource, raw: Container | None) -> Iterator[Finding]:
    if isinstance(source, PublishedSource) and raw is not None and not (source.published and source.published.sha256):
        yield from _file_findings(source, raw)
    data = source.load()
    train = len(data)
    if data.digest is not None and isinstance(source, DecodedSource) and raw is not None:
        yield Finding("sha256 of the decoded copy", data.compute_checksum(), data.digest)
        noted = read_meta(source.origin(raw).folder()).train
        train = len(data) if noted is None else noted
    if source.published is not None:
        yield from _content_findings(data, train, source.published)


def _file_findings(source: PublishedSource, raw: Container) -> Iterator[Finding]:
    """Compare files that carry a published name with their published md5, where no more is known of the content."""
    for file in source.downloads:
        if raw.path.name == file.name:
            yield Finding(f"md5 of {file.name}", md5(raw.path.read_bytes()), file.md5)
        elif raw.path.is_dir() and (raw.path / file.name).is_file():
            yield Finding(f"md5 of {file.name}", md5((raw.path / file.name).read_bytes()), file.md5)


def _content_findings(data: Dataset, train: int, published: Published) -> Iterator[Finding]:
    yield Finding("training samples", f"{train:,}", f"{published.train:,}")
    yield Finding("test samples", f"{len(data) - train:,}", f"{published.test:,}")
    yield Finding("classes", str(len(data.classes)), str(published.classes))
    for what, expected in published.sha256.items():
        part, _, kind = what.partition("_")
        rows = slice(0, train) if part == "train" else slice(train, None)
        values = data.inputs[rows].numpy() if kind == "pixels" else data.labels[rows].numpy().astype(np.uint8)
        yield Finding(f"sha256 of {part} {kind}", hashlib.sha256(values.data).hexdigest(), expected)


def _source(name: str, settings: Mapping[str, Any] | None) -> DatasetSource:
    component = datasets.get(name)
    return component(component.resolve(settings or {}))


def _missing(source: DecodedSource) -> Status:
    samples, classes = _known(source)
    return Status(source.name, "missing", samples=samples, classes=classes, note=source.instructions())


def _known(source: DatasetSource) -> tuple[int | None, int | None]:
    known = source.published
    return (known.train + known.test, known.classes) if known else (None, None)
