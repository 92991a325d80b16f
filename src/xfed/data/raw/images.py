"""From image files to arrays."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xfed.data.raw.reasons import reason
from xfed.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


def decode_rgb(content: bytes, where: str, resize: int | None = None) -> NDArray[np.uint8]:
    """Decode an image of any usual format into 3 × H × W; `resize` makes it square, of that many pixels a side."""
    from PIL import Image, ImageOps, UnidentifiedImageError  # takes a while, which workers need not spend

    try:
        with Image.open(io.BytesIO(content)) as image:
            upright = _eight_bits(ImageOps.exif_transpose(image), where).convert("RGB")
            if resize is not None:
                upright = upright.resize((resize, resize), Image.Resampling.BILINEAR)
            return np.asarray(upright).transpose(2, 0, 1)
    except InputError:
        raise
    except Exception as error:  # a broken file can make a decoder raise nearly anything
        why = "its format is unknown" if isinstance(error, UnidentifiedImageError) else reason(error)
        raise InputError(f"image {where!r} does not decode: {why}") from None


def _eight_bits(image: Picture, where: str) -> Picture:
    """Scale 16-bit greys to eight bits: Pillow would cut them off at 255. What has no known range is refused."""
    from PIL import Image

    if image.mode in ("I", "F"):
        kind = "32-bit whole numbers" if image.mode == "I" else "floating point numbers"
        raise InputError(f"image {where!r} holds {kind}, whose range nobody knows; allowed: 8 or 16 bits a channel")
    if not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
