"""What is said of each data set on this machine is true, and checks see what differs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from tests.data.published import (
    AG_TEST,
    AG_TRAIN,
    cifar10_files,
    fashion_mnist_files,
    jpeg,
    tiny_imagenet_files,
    write_folder,
    write_tar,
    write_zip,
)
from xfed.data.catalogue import Finding, check, fetch, list_status, status
from xfed.data.dataset import Published
from xfed.data.raw.download import Download
from xfed.data.sources.cifar10 import Cifar10
from xfed.data.sources.fashion_mnist import FashionMnist
from xfed.errors import InputError


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FashionMnist, "system", ())


def test_an_empty_machine(root: Path) -> None:
    states = {entry.name: entry.state for entry in list_status()}
    assert states.pop("digits") == "ready"
    assert {"cifar10", "cifar100", "tiny-imagenet", "agnews", "fashion-mnist", "folder", "npz"} <= set(states)
    assert set(states.values()) == {"missing"}
    missing = status("cifar10")
    assert (missing.samples, missing.classes, missing.where) == (60_000, 10, None)
    assert missing.note == f"put cifar-10-python.tar.gz or its unpacked folder cifar-10-batches-py into '{root}'"
    assert status("npz").note == "npz.path is None: give the .npz file with arrays x and y"


def test_from_found_to_ready(root: Path, cache: Path) -> None:
    path = write_tar(root / "cifar-10-python.tar.gz", "cifar-10-batches-py", cifar10_files())
    found = status("cifar10")
    assert (found.state, found.where, found.bytes) == ("found", path, path.stat().st_size)
    assert (found.samples, found.decoded, dict(found.checksums)) == (None, None, {})
    ready = fetch("cifar10")
    assert (ready.state, ready.samples, ready.classes) == ("ready", 12, 10)
    assert ready.decoded is not None
    assert ready.decoded.parent == cache / "decoded"
    assert ready.checksums == {"sha256": Cifar10().load().compute_checksum()}
    assert status("cifar10") == ready


def test_users_own_data(tmp_path: Path) -> None:
    images = write_folder(tmp_path / "pets", {"cat/1.png": jpeg((1, 2, 3), (4, 4), "PNG")})
    assert status("folder", {"path": images}).state == "found"
    assert fetch("folder", {"path": images}).samples == 1
    assert status("folder", {"path": tmp_path / "no"}).note == f"folder.path '{tmp_path}/no' is not a folder"
    assert check("folder", {"path": images}).ok


def test_fetch_downloads(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = fashion_mnist_files()
    write_folder(tmp_path / "site", files)
    published = tuple(
        Download((tmp_path / "site" / name).as_uri(), hashlib.md5(content).hexdigest())
        for name, content in files.items()
    )
    order = [file.name for file in FashionMnist.downloads]
    monkeypatch.setattr(FashionMnist, "downloads", tuple(sorted(published, key=lambda file: order.index(file.name))))
    assert fetch("fashion-mnist").samples == 6
    assert (root / "fashion-mnist").is_dir()


def test_check_compares_content_with_what_is_published(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(root / "cifar-10-batches-py", cifar10_files())
    labels = bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    pixels = np.stack([np.full((3, 32, 32), n, np.uint8) for n in (10, 11)])
    pixels[:, 1] += 1
    pixels[:, 2] += 2
    pixels[:, 2, 31, 31] = 255
    known = {
        "train_labels": hashlib.sha256(labels).hexdigest(),
        "test_pixels": hashlib.sha256(pixels.tobytes()).hexdigest(),
        "test_labels": hashlib.sha256(bytes([1, 0])).hexdigest(),
    }
    monkeypatch.setattr(Cifar10, "published", Published(train=10, test=3, classes=10, sha256=known))
    checked = check("cifar10")
    assert {finding.what: finding.ok for finding in checked.findings} == {
        "sha256 of the decoded copy": True,
        "training samples": True,
        "test samples": False,
        "classes": True,
        "sha256 of train labels": True,
        "sha256 of test pixels": True,
        "sha256 of test labels": False,
    }
    assert not checked.ok
    assert Finding("test samples", "2", "3") in checked.findings


def test_check_sees_a_flipped_bit_in_the_decoded_copy(root: Path) -> None:
    write_folder(root / "cifar-10-batches-py", cifar10_files())
    decoded = fetch("cifar10").decoded
    assert decoded is not None
    content = bytearray((decoded / "inputs.npy").read_bytes())
    content[-1] ^= 1
    (decoded / "inputs.npy").write_bytes(content)
    assert "sha256 of the decoded copy" in [finding.what for finding in check("cifar10").findings if not finding.ok]


def test_check_compares_files_that_carry_a_published_name(root: Path) -> None:
    path = write_zip(root / "tiny-imagenet-200.zip", "tiny-imagenet-200", tiny_imagenet_files())
    first = check("tiny-imagenet").findings[0]
    assert (first.what, first.ok) == ("md5 of tiny-imagenet-200.zip", False)
    assert first.found == hashlib.md5(path.read_bytes()).hexdigest()
    write_folder(root / "ag_news", {"train.csv": AG_TRAIN, "test.csv": AG_TEST})
    assert [finding.what for finding in check("agnews").findings][:2] == ["md5 of train.csv", "md5 of test.csv"]


def test_where_the_content_is_known_its_container_does_not_matter(root: Path) -> None:
    write_tar(root / "cifar-10-python.tar.gz", "cifar-10-batches-py", cifar10_files())
    assert not [finding for finding in check("cifar10").findings if "md5" in finding.what]


def test_check_of_the_embedded_set() -> None:
    checked = check("digits")
    assert checked.ok
    assert Finding("training samples", "1,797", "1,797") in checked.findings


def test_check_of_nothing_and_unknown_names(root: Path) -> None:
    with pytest.raises(InputError, match=r"data set 'cifar100' is not here; put cifar-100-python.tar.gz"):
        check("cifar100")
    with pytest.raises(InputError, match="unknown dataset 'cifar'"):
        status("cifar")
