"""Data files from strangers: what is not data is refused in a sentence."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.data.published import (
    AG_TEST,
    AG_TRAIN,
    cifar10_files,
    cifar100_files,
    fashion_mnist_files,
    jpeg,
    tiny_imagenet_files,
    write_folder,
    write_tar,
    write_zip,
)
from tests.fuzz.mutations import FUZZ, PLAIN, altered, damaged, outcome
from xfed import Dataset, InputError
from xfed.data.dataset import datasets
from xfed.data.dealing.partition import Partition, Split
from xfed.data.dealing.partition_file import read_partition
from xfed.data.raw import containers
from xfed.data.raw.containers import open_container
from xfed.data.raw.images import decode_rgb
from xfed.data.raw.pickles import read_pickle
from xfed.data.sources.npz import Npz


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def ag_parquet() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"text": ["a b", "c"], "label": [0, 3]}), stream)
    return stream.getvalue()


def decoded(name: str, raw: Path, **settings: Any) -> int:
    """Decode raw files with nothing between; give the number of samples."""
    source = datasets.get(name)
    made = source(source.Settings(**settings))
    contents = made.decode(open_container(raw, getattr(made, "forms", ())))  # type: ignore[attr-defined]
    rows = sum(len(block) for block in contents.blocks)
    assert rows == len(contents.labels) == contents.shape[0]
    return rows


NPZ = npz(x=np.arange(64, dtype=np.uint8).reshape(4, 4, 4), y=np.array([0, 1, 2, 1]), client=np.array([0, 0, 1, 1]))
PUBLISHED: dict[str, Mapping[str, bytes]] = {
    "cifar10": cifar10_files(),
    "cifar100": cifar100_files(),
    "fashion-mnist": fashion_mnist_files(),
    "tiny-imagenet": tiny_imagenet_files(),
    "agnews": {"train.csv": AG_TRAIN, "test.csv": AG_TEST},
    "agnews in parquet": {"train-00000-of-00001.parquet": ag_parquet(), "test-00000-of-00001.parquet": ag_parquet()},
}


@FUZZ
@given(content=damaged(NPZ))
def test_npz(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    outcome(lambda: decoded("npz", path, path=path), InputError)


SHAPES = st.lists(st.integers(0, 5), max_size=5)
TYPES = st.sampled_from(["u1", "i8", "f4", "f8", "?", "U3", "M8[s]", "c8", "u2"])


@FUZZ
@given(data=st.data())
def test_npz_of_odd_arrays(tmp_path: Path, data: st.DataObject) -> None:
    arrays = {}
    for name in data.draw(st.lists(st.sampled_from(["x", "y", "client", "classes", "z"]), unique=True)):
        array = np.zeros(data.draw(SHAPES), dtype=data.draw(TYPES))
        arrays[name] = array
    path = tmp_path / "x.npz"
    path.write_bytes(npz(**arrays))
    outcome(lambda: decoded("npz", path, path=path), InputError)


@pytest.mark.parametrize("name", PUBLISHED)
@FUZZ
@given(data=st.data())
def test_published_sets(tmp_path: Path, name: str, data: st.DataObject) -> None:
    files = dict(PUBLISHED[name])
    chosen = data.draw(st.sampled_from(sorted(files)))
    files[chosen] = data.draw(damaged(files[chosen]))
    source = name.split()[0]
    outcome(lambda: decoded(source, write_folder(tmp_path / "raw", files)), InputError)


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
@FUZZ
@given(data=st.data())
def test_archives(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    path = tmp_path / f"x.{kind}"
    (write_zip if kind == "zip" else write_tar)(path, "top", {"a.txt": b"one", "deep/b": b"2" * 600})
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    container = open_container(path, ["top"])
    names = outcome(container.names, InputError)
    if isinstance(names, list):
        outcome(lambda: dict(container.read(names)), InputError)


@FUZZ
@given(data=st.data(), kind=st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"]))
def test_images(data: st.DataObject, kind: str) -> None:
    image = data.draw(damaged(jpeg((10, 20, 30), (9, 7), kind)))
    found = outcome(lambda: decode_rgb(image, "x"), InputError)
    assert isinstance(found, InputError) or found.shape[0] == 3


@FUZZ
@given(content=st.one_of(damaged(cifar10_files()["data_batch_1"]), st.binary(max_size=200)))
def test_pickles(content: bytes) -> None:
    outcome(lambda: read_pickle(content, "x"), InputError)


BOMBS = {
    "notes far apart": b"\x80\x02}r\xff\xff\xff\x0f.",
    "notes far apart, in text": b"}p1000000000\n.",
    "a string that is not there": b"\x80\x04\x8d" + (2**40).to_bytes(8, "little") + b".",
    "a key of keys of keys": b"\x80\x02}(" + b"K\x01" + b"2\x86" * 20 + b"K\x02u.",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_pickles_that_would_fill_memory(bomb: str) -> None:
    with pytest.raises(InputError, match="pickle 'x' cannot be used"):
        read_pickle(BOMBS[bomb], "x")


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_archive_bombs(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "LARGEST", 10_000)
    path = tmp_path / f"x.{kind}"
    (write_zip if kind == "zip" else write_tar)(path, "top", {"small": b"1", "large": bytes(10_001)})
    container = open_container(path, ["top"])
    assert container.get("small") == b"1"
    with pytest.raises(InputError, match=r"member 'large' of 10,001 bytes; allowed: up to 10,000"):
        container.get("large")


def test_a_zip_that_lies_about_sizes_gives_no_more_than_it_says(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(1_000_000))
    content = path.read_bytes().replace((1_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged or cut short"):
        open_container(path).get("a")


def test_a_zip_with_a_member_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(""), b"1")
        archive.writestr("a", b"2")
    assert open_container(path).get("a") == b"2"


def test_a_tar_with_links_and_devices_gives_files_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        for number, kind in enumerate((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)):
            member = tarfile.TarInfo(f"member-{number}")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert open_container(path).names() == []


def test_arrays_that_unpack_to_more_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(npz(x=np.zeros((100, 32, 32), np.uint8), y=np.zeros(100, int)))
    monkeypatch.setattr("xfed.memory.free_memory", lambda: 50_000)
    with pytest.raises(InputError, match=r"x\.npz' needs .* GB of memory"):
        decoded("npz", path, path=path)


def test_arrays_that_claim_to_be_enormous(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (2**50, 2**10)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", stream.getvalue())
    with pytest.raises(InputError, match=r"x\.npz' is not a whole \.npz file"):
        Npz(Npz.Settings(path=path)).decode(open_container(path))


PARTITION = {"clients": [{"train": [0, 1], "test": [2]}, {"train": [3], "calibration": [4], "test": [5]}]}


@FUZZ
@given(value=st.one_of(altered(PARTITION), altered({**PARTITION, "overlapping": True}), PLAIN))
def test_partition_files(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "partition.json"
    path.write_text(json.dumps(value))
    found = outcome(lambda: read_partition(path, 10), InputError)
    assert isinstance(found, InputError | Partition)


@FUZZ
@given(data=st.data())
def test_damaged_partition_files(tmp_path: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["json", "safetensors"]))
    path = tmp_path / f"partition.{kind}"
    if kind == "json":
        path.write_text(json.dumps(PARTITION))
    else:
        arrays = [np.array(values) for values in ([0, 1], [], [2])]
        Partition.of([Split(*arrays)]).save(path)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    outcome(lambda: read_partition(path, 10), InputError)


SMALL = Dataset("small", torch.arange(48, dtype=torch.uint8).reshape(3, 1, 4, 4), torch.tensor([0, 1, 1]), ("a", "b"))


@FUZZ
@given(content=damaged(SMALL.to_bytes()))
def test_a_data_set_as_bytes(content: bytes) -> None:
    found = outcome(lambda: Dataset.from_bytes(content, SMALL.checksum()), InputError)
    assert isinstance(found, InputError) or found.compute_checksum() == SMALL.checksum()
