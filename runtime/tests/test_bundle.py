from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xfed_runtime import Bundle, BundleError, Policy


def write(root: Path, **changes: Any) -> Path:
    """A bundle without graphs: what is checked before any is loaded."""
    root.mkdir()
    np.savez(root / "0.npz", weight=np.ones(2, dtype=np.float32))
    mine = {"policy": {"kind": "confidence", "threshold": 0.5}, "macs": 3.5, "accuracy": 0.75}
    (root / "shared.json").write_text(json.dumps({"default": mine | {"macs": None, "accuracy": None}, "other": mine}))
    (root / "own.json").write_text(json.dumps({"default": mine}))
    files = {path.name: {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in root.iterdir()}
    manifest = {
        "bundle": 1,
        "classes": ["a", "b"],
        "macs": [1, 2],
        "inputs": {"kind": "image", "shape": [1, 2, 2], "scale": 255, "mean": 0.5, "std": 0.5},
        "formats": {"onnx-stages": {"graphs": [{"file": "stage.onnx", "personal": []}]}},
        "clients": {"0": "0.npz", "1": "0.npz", "2": "0.npz", "7": "0.npz"},
        "policies": {"shared": "shared.json", "clients": {"7": "own.json"}},
        "files": files,
    }
    (root / "bundle.json").write_text(json.dumps(manifest | changes))
    return root


def test_what_a_bundle_tells(tmp_path: Path) -> None:
    bundle = Bundle.open(str(write(tmp_path / "b")))
    assert bundle.clients == (0, 1, 2, 7)
    assert bundle.formats == ("onnx-stages",)
    assert bundle.tensors(0)["weight"].tolist() == [1, 1]
    assert bundle.policies(0)["default"].macs is None
    assert bundle.policies(7)["default"].macs == 3.5
    assert bundle.policies(7)["other"].policy == Policy("confidence", threshold=0.5)


def test_tampered_and_missing_files(tmp_path: Path) -> None:
    root = write(tmp_path / "b")
    with (root / "0.npz").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(BundleError, match=r"file '0.npz' .*sha256 differs"):
        Bundle.open(root)
    (root / "0.npz").unlink()
    with pytest.raises(BundleError, match=r"lacks its file '0.npz'"):
        Bundle.open(root)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../secret", "link"])
def test_no_path_leaves_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    noted = hashlib.sha256(b"secret").hexdigest()
    root = write(tmp_path / "b", files={name: {"sha256": noted}})
    (root / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(BundleError, match="names a file outside of itself"):
        Bundle.open(root)


def test_files_nobody_vouches_for_are_not_read(tmp_path: Path) -> None:
    bundle = Bundle.open(write(tmp_path / "b", clients={"0": "../secret.npz"}))
    with pytest.raises(BundleError, match=r"no file '../secret.npz' among those"):
        bundle.tensors(0)
    text = {"kind": "text", "length": 3, "tokens": 5, "vocabulary": "../words.json"}
    with pytest.raises(BundleError, match=r"no file '../words.json' among those"):
        Bundle.open(write(tmp_path / "text", inputs=text))


def test_unknown_client_and_format(tmp_path: Path) -> None:
    bundle = Bundle.open(write(tmp_path / "b"))
    with pytest.raises(BundleError, match="no client 5; it has: 0-2, 7"):
        bundle.runtime(5)
    with pytest.raises(BundleError, match="no format 'onnx-if'; it has: onnx-stages"):
        bundle.runtime(0, "onnx-if")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"bundle": 2}, "version 2; this runtime reads 1"),
        ({"macs": None}, "damaged bundle.json"),
        ({"inputs": {}}, "damaged bundle.json"),
        ({"files": ["0.npz"]}, "damaged bundle.json"),
    ],
)
def test_manifests_that_cannot_be_used(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(BundleError, match=why):
        Bundle.open(write(tmp_path / "b", **changes))


def test_what_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not a bundle"):
        Bundle.open(tmp_path)
    (tmp_path / "bundle.json").write_text("{")
    with pytest.raises(BundleError, match="is not a bundle"):
        Bundle.open(tmp_path)
    (tmp_path / "bundle.json").write_text("[]")
    with pytest.raises(BundleError, match="damaged"):
        Bundle.open(tmp_path)


def test_client_file_with_pickled_objects_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path / "b")
    np.savez(root / "0.npz", weight=np.array([{"evil": 1}], dtype=object))
    manifest = json.loads((root / "bundle.json").read_text())
    manifest["files"]["0.npz"]["sha256"] = hashlib.sha256((root / "0.npz").read_bytes()).hexdigest()
    (root / "bundle.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="cannot be read"):
        Bundle.open(root).tensors(0)
