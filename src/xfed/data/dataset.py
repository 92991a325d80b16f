"""A pooled data set: raw inputs, labels, class names and how a batch is normalised; and where data sets come from."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, ClassVar, SupportsIndex, TypeVar

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from xfed.components import Component, Registry
from xfed.data.card import DataCard, Kind, PerChannel, normalised
from xfed.errors import InputError

SAMPLES_AT_ONCE = 4096


@dataclass(frozen=True)
class Dataset:
    """Samples of all clients together; a client sees it only through the indices it owns.

    Inputs stay as stored: images as uint8 (N × C × H × W), text as rows of token ids (N × length, 0 pads).
    `normalise` turns a batch of images into (x / scale − mean) / std in float32, a batch of text into int64 ids.
    `groups` says which natural client each sample belongs to, where the data has such a column.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    scale: float = 255.0
    mean: PerChannel = 0.5
    std: PerChannel = 0.5
    kind: Kind = "image"
    vocabulary: tuple[str, ...] | None = None
    groups: Tensor | None = None
    digest: str | None = field(default=None, init=False, repr=False, compare=False)
    """The checksum, where it is known already. `replace` drops it, as the content may then differ."""
    reopen: Callable[[], Dataset] | None = field(default=None, init=False, repr=False, compare=False)
    """Opens the same data from its files: what travels to another process instead of the samples."""

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise InputError(f"data set {self.name!r} has {len(self.inputs)} inputs but {len(self.labels)} labels")
        if len(self.labels) == 0:
            raise InputError(f"data set {self.name!r} is empty")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= len(self.classes):
            raise InputError(
                f"data set {self.name!r} has labels from {low} to {high}; "
                f"allowed with {len(self.classes)} classes: 0 to {len(self.classes) - 1}"
            )
        if self.groups is not None and len(self.groups) != len(self.labels):
            raise InputError(
                f"data set {self.name!r} has {len(self.labels)} samples but names the client of {len(self.groups)}"
            )
        if self.kind == "text" and (self.inputs.ndim != 2 or self.inputs.is_floating_point()):
            raise InputError(
                f"data set {self.name!r} is text, but its inputs are {self.inputs.dtype} of shape "
                f"{tuple(self.inputs.shape)}; allowed: rows of whole numbers, N × length"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Send a data set that lies in files as the way to open it; send any other as it is."""
        return super().__reduce_ex__(protocol) if self.reopen is None else (self.reopen, ())

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input; for text the length of a row."""
        return tuple(self.inputs.shape[1:])

    @cached_property
    def card(self) -> DataCard:
        """Everything but the samples."""
        text = self.kind == "text"
        return DataCard(
            self.name,
            self.checksum(),
            self.kind,
            self.input_shape,
            self.classes,
            self.scale,
            self.mean,
            self.std,
            tokens=int(self.inputs.max()) + 1 if text else None,
            vocabulary=self.vocabulary,
        )

    def normalise(self, raw: Tensor) -> Tensor:
        """Turn stored values into what a network takes."""
        return normalised(raw, self.kind, self.scale, self.mean, self.std)

    def by_channel(self) -> Dataset:
        """Normalise each channel by its own mean and std over all samples; they stay where they are."""
        if self.kind != "image":
            raise InputError(f"normalise is 'channels', but data set {self.name!r} is text; allowed with it: fixed")
        sums = torch.zeros(2, self.inputs.shape[1], dtype=torch.float64)
        for some in self.inputs.split(SAMPLES_AT_ONCE):
            values = some.to(torch.float64) / self.scale
            sums += torch.stack([values.sum((0, 2, 3)), values.square().sum((0, 2, 3))])
        mean, square = sums / (self.inputs.numel() / self.inputs.shape[1])
        std = (square - mean**2).clamp(min=0).sqrt()
        return self._with(tuple(mean.tolist()), tuple(torch.where(std > 0, std, 1.0).tolist()))

    def _with(self, mean: PerChannel, std: PerChannel) -> Dataset:
        """Give the same samples, normalised otherwise; their checksum stays."""
        changed = replace(self, mean=mean, std=std)
        object.__setattr__(changed, "digest", self.digest)
        if self.reopen is not None:
            object.__setattr__(changed, "reopen", partial(_reopened, self.reopen, mean, std))
        return changed

    def to(self, device: torch.device) -> Dataset:
        """Move the samples to a device, once."""
        if device == self.inputs.device == self.labels.device:
            return self
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))

    def shared(self) -> Dataset:
        """Lay the samples where worker processes need no copy: shared memory, or the files they are in already."""
        if self.reopen is not None:
            return self
        return replace(self, inputs=self.inputs.share_memory_(), labels=self.labels.share_memory_())

    def in_files(self, digest: str, reopen: Callable[[], Dataset]) -> Dataset:
        """Note that the samples are memory-mapped files: their checksum, and how to open them again."""
        noted = replace(self)
        object.__setattr__(noted, "digest", digest)
        object.__setattr__(noted, "reopen", reopen)
        return noted

    def to_bytes(self) -> bytes:
        """Encode all samples and what else there is, for a machine that has none of the files."""
        plain = {
            name: getattr(self, name) for name in ("name", "classes", "scale", "mean", "std", "kind", "vocabulary")
        }
        tensors = {"inputs": self.inputs, "labels": self.labels}
        if self.groups is not None:
            tensors["groups"] = self.groups
        encoded: bytes = safetensors.torch.save(tensors, metadata={"plain": json.dumps(plain)})
        return encoded

    @classmethod
    def from_bytes(cls, data: bytes, sha256: str) -> Dataset:
        """Decode what `to_bytes` gave, and make sure that it is the data that was meant."""
        try:
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            fields: dict[str, Any] = json.loads(header["__metadata__"]["plain"]) | safetensors.torch.load(data)
            for name in ("classes", "vocabulary", "mean", "std"):
                fields[name] = tuple(fields[name]) if isinstance(fields[name], list) else fields[name]
            made = cls(**fields)
        except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"the data set's bytes are damaged ({type(error).__name__})") from None
        if made.checksum() != sha256:
            raise InputError(f"the bytes of data set {made.name!r} are not those that were meant")
        return made

    def checksum(self) -> str:
        """Identify the content: shapes, types, inputs, labels, vocabulary and natural clients."""
        return self.digest or self.compute_checksum()

    def compute_checksum(self) -> str:
        """Read all of the content for its checksum, also where it is noted already."""
        digest = hashlib.sha256(f"{self.inputs.dtype}{tuple(self.inputs.shape)}{self.classes}".encode())
        digest.update(self.inputs.cpu().contiguous().numpy().data)
        digest.update(self.labels.cpu().numpy().astype(np.int64).data)
        if self.vocabulary is not None:
            digest.update("\n".join(self.vocabulary).encode())
        if self.groups is not None:
            digest.update(self.groups.numpy().astype(np.int64).data)
        return digest.hexdigest()


def refuse_not_finite(inputs: NDArray[Any], what: str) -> None:
    """Refuse samples with NaN or infinite numbers, naming the first: training on them diverges at once."""
    wrong = np.flatnonzero(~np.isfinite(inputs.reshape(len(inputs), -1)).all(axis=1))
    if len(wrong):
        kind = "NaN" if np.isnan(inputs[wrong[0]]).any() else "infinite"
        how_many = f"{len(wrong):,} of {len(inputs):,} samples"
        raise InputError(f"{what} is {kind} in sample {wrong[0]}, and not finite in {how_many}; mend or drop them")


def _reopened(reopen: Callable[[], Dataset], mean: PerChannel, std: PerChannel) -> Dataset:
    return reopen()._with(mean, std)


@dataclass(frozen=True)
class Published:
    """What is publicly known of a data set: samples per part, classes, and checksums of its content.

    Checksums are sha256 of `train_pixels`, `test_pixels` (uint8, N × C × H × W), `train_labels` and `test_labels`
    (uint8), so they do not depend on the container the data came in.
    """

    train: int
    test: int
    classes: int
    sha256: Mapping[str, str] = field(default_factory=dict)
    input_shape: tuple[int, ...] | None = None
    """Shape of an image; not of text, whose length is a setting."""


class DatasetSource(Component):
    """Where a data set comes from; subclasses load it and document its settings."""

    recommended: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Experiment settings that suit this data set; they stand in for the general defaults."""

    published: ClassVar[Published | None] = None
    """What the content must be, for a data set that everyone knows."""

    elsewhere: ClassVar[str | None] = None
    """Why the data cannot be loaded here; nothing for data that can."""

    def load(self) -> Dataset:
        """Read the whole data set, published train and test parts pooled."""
        raise NotImplementedError

    def outline(self) -> DataCard | None:
        """Say what a network must fit, where that is known without having the data."""
        known = self.published
        if known is None or known.input_shape is None:
            return None
        classes = tuple(map(str, range(known.classes)))
        return DataCard(self.name, "", "image", known.input_shape, classes, scale=255.0, mean=0.5, std=0.5)


class FunctionSource(DatasetSource):
    """A data set made by a plain function of the user's."""

    function: ClassVar[Callable[[], Any]]

    def load(self) -> Dataset:
        """Call the function."""
        made = type(self).function()
        if not isinstance(made, Dataset):
            raise InputError(
                f"the function of data set {self.name!r} returned {type(made).__name__}; allowed: a Dataset"
            )
        return made


S = TypeVar("S", bound=type[DatasetSource] | Callable[[], Dataset])


class DatasetRegistry(Registry[DatasetSource]):
    """Data sets by name. A source is a class, or just a function without parameters that returns a Dataset."""

    def register(self, name: str) -> Callable[[S], S]:
        """Decorate a class or a function to make it known under `name`."""
        add_class = super().register(name)

        def add(source: S) -> S:
            add_class(source if isinstance(source, type) else _wrap(name, source))
            return source

        return add


def _wrap(name: str, function: Callable[[], Dataset]) -> type[DatasetSource]:
    if not callable(function):
        raise InputError(f"data set {name!r} is {function!r}; allowed: a DatasetSource class or a function")
    parameters = inspect.signature(function).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if needed:
        raise InputError(
            f"the function of data set {name!r} needs {', '.join(needed)}; allowed: a function without parameters, "
            "or a DatasetSource class with Settings"
        )
    module, doc = function.__module__, function.__doc__
    return type(name, (FunctionSource,), {"function": staticmethod(function), "__module__": module, "__doc__": doc})


datasets = DatasetRegistry("dataset", DatasetSource, "xfed.data.sources")
dataset = datasets.register
