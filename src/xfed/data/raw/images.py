"""From image files to arrays."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from xfed.data.raw.reasons import reason
from xfed.errors import InputError


def decode_rgb(content: bytes, where: str, resize: int | None = None) -> NDArray[np.uint8]:
    """Decode an image of any usual format into 3 × H × W; `resize` makes it square, of that many pixels a side."""
    from PIL import Image, ImageOps, UnidentifiedImageError  # takes a while, which workers need not spend

    try:
        with Image.open(io.BytesIO(content)) as image:
            upright = ImageOps.exif_transpose(image).convert("RGB")
            if resize is not None:
                upright = upright.resize((resize, resize), Image.Resampling.BILINEAR)
            return np.asarray(upright).transpose(2, 0, 1)
    except Exception as error:  # a broken file can make a decoder raise nearly anything
        why = "its format is unknown" if isinstance(error, UnidentifiedImageError) else reason(error)
        raise InputError(f"image {where!r} does not decode: {why}") from None
