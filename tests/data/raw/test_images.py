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


def test_sixteen_bits_are_scaled_to_eight() -> None:
    """An X-ray from 0 to 65,535: the upper byte of each, where Pillow itself would make all above 255 white."""
    values = np.array([[0, 255, 256], [32768, 60000, 65535]], dtype=np.uint16)
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, "PNG")
    decoded = decode_rgb(stream.getvalue(), "x.png")
    assert decoded.tolist() == [[[0, 0, 1], [128, 234, 255]]] * 3


@pytest.mark.parametrize(("dtype", "kind"), [(np.float32, "floating point numbers"), (np.int32, "32-bit whole")])
def test_numbers_without_a_range_are_refused(dtype: type[np.generic], kind: str) -> None:
    stream = io.BytesIO()
    Image.fromarray(np.ones((2, 3), dtype=dtype)).save(stream, "TIFF")
    with pytest.raises(InputError, match=rf"image 'scan\.tif' holds {kind}.*; allowed: 8 or 16 bits a channel"):
        decode_rgb(stream.getvalue(), "scan.tif")


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
