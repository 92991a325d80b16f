"""Tiny data sets, written in the formats in which the real ones are published."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def python2_pickle(value: Any) -> bytes:
    """Pickle like Python 2 did for CIFAR: protocol 2, byte strings, arrays by numpy.core.multiarray."""
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        reconstruct = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
        kind = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        shape = b"(" + b"".join(_python2(size) for size in value.shape) + b"t"
        return reconstruct + b"(K\x01" + shape + kind + b"\x89" + _python2(value.tobytes()) + b"tb"
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2(key.encode()) + _python2(item) for key, item in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(_python2(item) for item in value) + b"e"
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    return b"J" + struct.pack("<i", value)


def cifar_batch(images: int, label_key: str, labels: Sequence[int], first: int = 0) -> dict[str, Any]:
    """Image i is filled with (first + i) in red, + 1 in green, + 2 in blue; its very last pixel is 255."""
    values = (first + np.arange(images)).astype(np.uint8)
    pixels = np.stack([np.repeat((values + channel)[:, None], 1024, 1) for channel in range(3)], 1).reshape(images, -1)
    pixels[:, -1] = 255
    return {"data": pixels, label_key: list(labels)}


def cifar10_files(per_batch: int = 2) -> dict[str, bytes]:
    """Five training batches and a test batch; image i of all has label i % 10."""
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    files = {"batches.meta": python2_pickle({"label_names": [f"class {n}".encode() for n in range(10)]})}
    for number, name in enumerate(names):
        first = number * per_batch
        labels = [n % 10 for n in range(first, first + per_batch)]
        files[name] = python2_pickle(cifar_batch(per_batch, "labels", labels, first))
    return files


def cifar100_files(train: int = 5, test: int = 3) -> dict[str, bytes]:
    """Fine label of image i of both parts together is i; coarse labels stand beside it."""
    names = {"fine_label_names": [f"fine {n}".encode() for n in range(100)], "coarse_label_names": [b"coarse"]}
    parts = {"train": range(train), "test": range(train, train + test)}
    files = {"meta": python2_pickle(names)}
    for name, labels in parts.items():
        batch = cifar_batch(len(labels), "fine_labels", labels, labels[0])
        files[name] = python2_pickle({**batch, "coarse_labels": [0] * len(labels)})
    return files


def jpeg(
    colour: tuple[int, int, int], size: tuple[int, int] = (64, 64), kind: str = "JPEG", mode: str = "RGB"
) -> bytes:
    """An image of one colour."""
    stream = io.BytesIO()
    Image.new("RGB", size, colour).convert(mode).save(stream, kind)
    return stream.getvalue()


WNIDS = ["n03000000", "n01000000", "n02000000"]
"""As published, in no order."""


def tiny_imagenet_files() -> dict[str, bytes]:
    """Three classes of two training images; validation images of the third, first and first class in sorted order."""
    files = {
        "wnids.txt": "\n".join(WNIDS).encode() + b"\n",
        "words.txt": b"n00000001\tentity\nn01000000\tgoldfish, Carassius auratus\nn02000000\tbullfrog\n",
        "val/val_annotations.txt": (
            b"val_0.JPEG\tn03000000\t0\t32\t44\t62\nval_1.JPEG\tn01000000\t1\t1\t2\t2\nval_10.JPEG\tn01000000\t0\t0\t9\t9\n"
        ),
        "test/images/test_0.JPEG": jpeg((9, 9, 9)),
    }
    for number, wnid in enumerate(sorted(WNIDS)):
        files[f"train/{wnid}/{wnid}_boxes.txt"] = b"box\n"
        for image in range(2):
            files[f"train/{wnid}/images/{wnid}_{image}.JPEG"] = jpeg((80 * number, 40 + image, 200))
    for number, name in enumerate(("val_0", "val_1", "val_10")):
        files[f"val/images/{name}.JPEG"] = jpeg((10 * number, 255, 0), mode="L" if number == 2 else "RGB")
    return files


def idx(values: NDArray[np.uint8]) -> bytes:
    """An IDX file of bytes, compressed."""
    header = struct.pack(f">I{values.ndim}I", 0x0800 | values.ndim, *values.shape)
    return gzip.compress(header + values.tobytes(), mtime=0)  # no clock: the same bytes in every process


def fashion_mnist_files(train: int = 4, test: int = 2) -> dict[str, bytes]:
    """Image i of both parts together is filled with i and has label i."""
    files = {}
    for part, numbers in (("train", range(train)), ("t10k", range(train, train + test))):
        values = np.asarray(numbers, dtype=np.uint8)
        files[f"{part}-images-idx3-ubyte.gz"] = idx(np.tile(values[:, None, None], (1, 28, 28)))
        files[f"{part}-labels-idx1-ubyte.gz"] = idx(values)
    return files


AG_TRAIN = (
    b'"3","Oil falls","Oil prices fall, again."\n'
    b'"1","Peace talks","Talks\\resume ""soon"" in Geneva"\n'
    b'"4","Oil chip","A new chip"\n'
)
"""Class, title, description: no header, as published."""
AG_TEST = b'"2","Final","The final is won"\n'
AG_TRAIN_JOINED = (
    b"label,text\n"
    b'2,"Oil falls Oil prices fall, again."\n'
    b'0,"Peace talks Talks\\resume ""soon"" in Geneva"\n'
    b"3,Oil chip A new chip\n"
)
"""The same rows as the label,text files have them."""


def parquet(path: Path, labels: Sequence[int], texts: Sequence[str]) -> None:
    """A file as the Hugging Face hub has it."""
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"text": list(texts), "label": list(labels)}), path)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files unpacked."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def write_tar(path: Path, top: str, files: Mapping[str, bytes]) -> Path:
    """Write files as a .tar.gz, under a folder."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_zip(path: Path, top: str, files: Mapping[str, bytes]) -> Path:
    """Write files as a .zip, under a folder, with entries for folders too."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{top}/", b"")
        for name, content in files.items():
            archive.writestr(f"{top}/{name}", content)
    return path


class Touch:
    """Pickles to a call that would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def malicious(path: Path, protocol: int = 2) -> bytes:
    """A pickle that creates a file when it is read carelessly."""
    return pickle.dumps({"data": Touch(path)}, protocol)
