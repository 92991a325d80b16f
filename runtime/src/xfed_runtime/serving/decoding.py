"""From decoded JSON to what the runtime takes: every input is checked, and a wrong one named."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed_runtime.inputs import ImageInputs, Inputs, TextInputs, finite
from xfed_runtime.serving.schemas import RequestError

LONGEST_TEXT = 100_000
"""Characters; what a network reads of a text is far less."""


def decode(inputs: Inputs, given: Sequence[Any]) -> Any:
    """Make a batch; inputs are counted from 1 in what is said about them."""
    if isinstance(inputs, ImageInputs):
        return np.stack([_image(inputs, item, f"input {number}") for number, item in enumerate(given, 1)])
    if inputs.vocabulary is not None and isinstance(given[0], str):
        return [_text(item, f"input {number}") for number, item in enumerate(given, 1)]
    rows = np.zeros((len(given), inputs.length), dtype=np.int64)
    for number, item in enumerate(given, 1):
        ids = _ids(inputs, item, f"input {number}")
        rows[number - 1, : len(ids)] = ids
    return rows


def _image(inputs: ImageInputs, item: Any, which: str) -> NDArray[Any]:
    if isinstance(item, dict):
        if not inputs.bounded:
            raise RequestError(422, f"{which} is an object, but this network takes numbers without a range: give those")
        image = _encoded(inputs, item, which)
    else:
        image = _numbers(item)
        if image.shape != inputs.shape or image.dtype.kind not in "uif":
            what = _kind(item) if image.dtype.kind not in "uif" else f"of shape {_times(image.shape) or 'none'}"
            others = ', {"raw": base64} or {"file": base64 of a PNG or JPEG}' if inputs.bounded else ""
            raise RequestError(
                422, f"{which} is {what}; this network takes images: numbers of shape {_times(inputs.shape)}{others}"
            )
    if not finite(image):
        raise RequestError(422, f"{which} has pixels that are not finite numbers")
    least, most = image.min(), image.max()
    if inputs.bounded and not 0 <= least <= most <= inputs.scale:
        raise RequestError(422, f"{which} has pixels from {least:g} to {most:g}; allowed: 0 to {inputs.scale:g}")
    return image


def _numbers(item: Any) -> NDArray[Any]:
    try:
        return np.asarray(item)
    except (ValueError, OverflowError):  # rows of unequal length, or too many dimensions
        return np.empty(0, dtype=object)


def _encoded(inputs: ImageInputs, item: dict[str, Any], which: str) -> NDArray[Any]:
    if len(item) != 1 or not ({"raw", "file"} & item.keys()):
        raise RequestError(422, f"{which} is an object with {', '.join(item) or 'nothing'}; allowed: raw, or file")
    ((name, text),) = item.items()
    try:
        content = base64.b64decode(text.encode("ascii"), validate=True)
    except (AttributeError, UnicodeEncodeError, binascii.Error):
        raise RequestError(422, f"{which}: {name!r} is not base64") from None
    if name == "file":
        return _file(inputs, content, which)
    size = int(np.prod(inputs.shape))
    if len(content) != size:
        raise RequestError(
            422, f"{which}: 'raw' has {len(content)} bytes; this network takes {_times(inputs.shape)} = {size}"
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(inputs.shape)


def _file(inputs: ImageInputs, content: bytes, which: str) -> NDArray[Any]:
    """Decode an image file, white becoming `scale`; its size is known, and must fit, before any pixel is decoded."""
    from PIL import Image, ImageOps

    channels, height, width = inputs.shape
    mode = {1: "L", 3: "RGB"}.get(channels)
    if mode is None:
        raise RequestError(
            422, f"{which} is a file, but this network takes {channels} channels: give numbers, or raw bytes"
        )
    try:
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            if sorted(image.size) != sorted((width, height)):
                raise RequestError(
                    422, f"{which} has {_times(image.size)} pixels; this network takes {width} × {height}"
                )
            if image.mode.startswith(("I", "F")):
                raise RequestError(422, f"{which} has more than 8 bits a channel; allowed: 8")
            upright = ImageOps.exif_transpose(image).convert(mode)
    except RequestError:
        raise
    except Exception:  # a broken file can make a decoder raise nearly anything
        raise RequestError(422, f"{which}: 'file' is not a PNG or JPEG that can be decoded") from None
    if upright.size != (width, height):
        raise RequestError(422, f"{which} has {_times(upright.size)} pixels; this network takes {width} × {height}")
    pixels = np.asarray(upright).reshape(height, width, channels).transpose(2, 0, 1)
    return pixels if inputs.scale == 255 else pixels.astype(np.float32) * np.float32(inputs.scale / 255)


def _text(item: Any, which: str) -> str:
    if not isinstance(item, str):
        raise RequestError(422, f"{which} is {_kind(item)}, but the first input is a text; give one kind in a request")
    if len(item) > LONGEST_TEXT:
        raise RequestError(422, f"{which} has {len(item):,} characters; allowed: up to {LONGEST_TEXT:,}")
    return item


def _ids(inputs: TextInputs, item: Any, which: str) -> list[int]:
    takes = "a text, or " if inputs.vocabulary is not None else ""
    if not (isinstance(item, list) and 0 < len(item) <= inputs.length):
        raise RequestError(422, f"{which} is {_kind(item)}; this network takes {takes}1 to {inputs.length} token ids")
    odd = next((each for each in item if type(each) is not int), None)
    if odd is not None:
        raise RequestError(422, f"{which} holds {odd!r:.40}, which is no token id; allowed: whole numbers")
    if not 0 <= min(item) <= max(item) < inputs.tokens:
        raise RequestError(
            422, f"{which} has token ids from {min(item)} to {max(item)}; allowed: 0 to {inputs.tokens - 1}"
        )
    return item


def _kind(item: Any) -> str:
    if isinstance(item, list):
        return f"a list of {len(item)}"
    kinds = {str: "a text", bool: "true or false", dict: "an object", type(None): "null"}
    return kinds.get(type(item), "a number")


def _times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
