"""From what people have, pixels or text, to what the network takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed_runtime.text import PADDING, Vocabulary


class InputsError(ValueError):
    """Inputs or a wish that the network cannot take, told in one sentence."""


def finite(values: NDArray[Any]) -> bool:
    """Tell whether all values are finite numbers as networks take them, in float32."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(values.astype(np.float32)).all())


@dataclass(frozen=True)
class ImageInputs:
    """Images N × C × H × W with values from 0 to `scale`; the network takes (x / scale − mean) / std in float32.

    Mean and std are numbers for all channels, or one for each. Scale 1 is that of someone's own floating point numbers,
    which were taken as they are: of these no bound is known, and any finite value will do.
    """

    shape: tuple[int, ...]
    scale: float
    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    @property
    def bounded(self) -> bool:
        """Tell whether values have a range."""
        return self.scale != 1

    def prepare(self, raw: Any) -> NDArray[np.float32]:
        """Check and normalise a batch."""
        images = self.check(raw)
        mean, std = (np.reshape(each, (-1, 1, 1)) for each in (self.mean, self.std))
        factor, offset = (1 / (self.scale * std)).astype(np.float32), (mean / std).astype(np.float32)
        result: NDArray[np.float32] = images.astype(np.float32) * factor - offset
        return result

    def check(self, raw: Any) -> NDArray[Any]:
        """Refuse what is no batch of such images; give it as an array."""
        images = _array(raw)
        if images.shape[1:] != self.shape or images.ndim != len(self.shape) + 1 or images.dtype.kind not in "uif":
            values = f", with values from 0 to {self.scale:g}" if self.bounded else ""
            raise InputsError(
                f"inputs are {_describe(raw, images)}; this network takes images as numbers of shape "
                f"n × {' × '.join(map(str, self.shape))}{values}"
            )
        if images.dtype.kind == "f" and not finite(images):
            raise InputsError("the images have values that are not finite numbers")
        if self.bounded and images.size and (images.dtype != np.uint8 or self.scale < 255):
            least, most = images.min(), images.max()
            if not 0 <= least <= most <= self.scale:
                raise InputsError(f"the images have values from {least:g} to {most:g}; allowed: 0 to {self.scale:g}")
        return images

    def example(self) -> NDArray[np.float32]:
        """Give one input of grey noise, always the same."""
        return np.random.default_rng(0).uniform(0, self.scale, (1, *self.shape)).astype(np.float32)


@dataclass(frozen=True)
class TextInputs:
    """Texts, or rows of token ids (N × at most `length`, 0 pads); a batch is cut to its longest row."""

    length: int
    tokens: int
    """Number of token ids that the network knows."""
    vocabulary: Vocabulary | None

    def prepare(self, raw: Any) -> NDArray[np.int64]:
        """Check and encode a batch."""
        rows = self.check(raw)
        used = np.flatnonzero((rows != PADDING).any(axis=0))
        return rows[:, : used[-1] + 1 if len(used) else 1].astype(np.int64)

    def check(self, raw: Any) -> NDArray[Any]:
        """Refuse what is no batch of texts or of rows; give it as rows of token ids."""
        rows = self._encode(raw) if _is_texts(raw) else _array(raw)
        if rows.ndim != 2 or rows.dtype.kind not in "ui" or not 0 < rows.shape[1] <= self.length:
            takes = "a list of texts, or " if self.vocabulary else ""
            raise InputsError(
                f"inputs are {_describe(raw, rows)}; this network takes {takes}rows of at most {self.length} token ids"
            )
        if rows.size and not 0 <= rows.min() <= rows.max() < self.tokens:
            raise InputsError(
                f"the rows have token ids from {rows.min()} to {rows.max()}; allowed: 0 to {self.tokens - 1}"
            )
        return rows

    def _encode(self, texts: Sequence[str]) -> NDArray[np.int32]:
        if self.vocabulary is None:
            raise InputsError("there is no vocabulary; give rows of token ids in place of texts")
        return self.vocabulary.encode(texts, self.length)

    def example(self) -> NDArray[np.int64]:
        """Give one row of full length, always the same."""
        return np.full((1, self.length), self.tokens - 1, dtype=np.int64)


Inputs = ImageInputs | TextInputs


def _is_texts(raw: Any) -> bool:
    return isinstance(raw, list | tuple) and bool(raw) and all(isinstance(text, str) for text in raw)


def _array(raw: Any) -> NDArray[Any]:
    try:
        return np.asarray(raw)
    except ValueError:  # rows of unequal length
        return np.empty(0, dtype=object)


def _describe(raw: Any, array: NDArray[Any]) -> str:
    if isinstance(raw, str) or _is_texts(raw):
        return "text"
    return f"{array.dtype} of shape {' × '.join(map(str, array.shape)) or 'none'}"
