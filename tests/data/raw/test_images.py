"""Image files as arrays: order of pixels, colours, sizes, turned photographs."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from tests.data.published import jpeg
from xfed.data.raw.images import decode_rgb
from xfed.errors import InputError


def test_pixels_and_order() -> None:
    image = Image.new("RGB", (3, 2))
    image.putpixel((2, 1), (10, 20, 30))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    decoded = decode_rgb(stream.getvalue(), "x.png")
    assert decoded.shape == (3, 2, 3)
    assert decoded.dtype == np.uint8
    assert decoded[:, 1, 2].tolist() == [10, 20, 30]
    assert decoded.sum() == 60


def test_grey_images_become_rgb() -> None:
    assert decode_rgb(jpeg((7, 7, 7), (4, 5), "PNG", "L"), "x").tolist() == np.full((3, 5, 4), 7).tolist()


def test_resize() -> None:
    assert decode_rgb(jpeg((1, 2, 3), (9, 5), "PNG"), "x", resize=4).shape == (3, 4, 4)


def test_turned_photographs_are_set_upright() -> None:
    image = Image.new("RGB", (3, 2))
    image.putpixel((0, 0), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    stream = io.BytesIO()
    image.save(stream, "PNG", exif=exif)
    decoded = decode_rgb(stream.getvalue(), "x.png")
    assert decoded.shape == (3, 3, 2)
    assert decoded[0].tolist() == [[0, 255], [0, 0], [0, 0]]


@pytest.mark.parametrize("content", [b"", b"not an image", jpeg((1, 2, 3))[:300], jpeg((1, 2, 3), kind="PNG")[:60]])
def test_an_image_that_does_not_decode_is_named(content: bytes) -> None:
    with pytest.raises(InputError, match=r"image 'cats/7\.jpg' does not decode: ") as caught:
        decode_rgb(content, "cats/7.jpg")
    assert "0x" not in str(caught.value)
