"""Bundles that are opened, and the many that must be refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import HOMES, external, in_graph, vouch, write

from xfed_runtime import Bundle, BundleError, Policy


def test_what_a_bundle_tells(tmp_path: Path) -> None:
    root = write(tmp_path / "b")
    bundle = Bundle.open(str(root))
    assert bundle.clients == (0, 1, 2, 7)
    assert bundle.formats == ("onnx-stages",)
    assert bundle.tensors(0)["weight"].tolist() == [1, 1]
    assert bundle.policies(0)["default"].macs is None
    assert bundle.policies(7)["default"].macs == 3.5
    assert bundle.policies(7)["other"].policy == Policy("confidence", threshold=0.5)
    assert bundle.digest == hashlib.sha256((root / "bundle.json").read_bytes()).hexdigest()


def test_a_pinned_digest(tmp_path: Path) -> None:
    root = write(tmp_path / "b")
    digest = Bundle.open(root).digest
    assert Bundle.open(root, digest=digest.upper()).digest == digest
    manifest = json.loads((root / "bundle.json").read_text())
    (root / "bundle.json").write_text(json.dumps(manifest | {"classes": ["b", "a"]}))
    Bundle.open(root)
    with pytest.raises(BundleError, match=f"has the digest .*, not {digest}"):
        Bundle.open(root, digest=digest)


def test_tampered_and_missing_files(tmp_path: Path) -> None:
    root = write(tmp_path / "b")
    with (root / "0.bin").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(BundleError, match=r"file '0.bin' .*sha256 differs"):
        Bundle.open(root)
    (root / "0.bin").unlink()
    with pytest.raises(BundleError, match=r"lacks its file '0.bin'"):
        Bundle.open(root)


@pytest.mark.parametrize("name", ["0.bin", "1.onnx", "shared.json"])
def test_a_file_swapped_after_opening_is_refused(tmp_path: Path, name: str) -> None:
    root = write(tmp_path / "b", stages=(in_graph(external("0.bin")),) * 2)
    bundle = Bundle.open(root)
    (root / name).write_bytes((root / name).read_bytes() + b" ")
    with pytest.raises(BundleError, match=f"file '{name}' .*sha256 differs"):
        bundle.policies(0) if name == "shared.json" else bundle.runtime(0)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../secret", "link", "C:\\secret", "a\\..\\b"])
def test_no_path_leaves_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    noted = {"sha256": hashlib.sha256(b"secret").hexdigest(), "bytes": 6}
    root = write(tmp_path / "b")
    (root / "link").symlink_to(tmp_path / "secret")
    manifest = json.loads((root / "bundle.json").read_text())
    manifest["files"][name] = noted
    (root / "bundle.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="names a file outside of itself"):
        Bundle.open(root)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("location", ["{secret}", "../secret", "link", "sub/../../secret", "*/_ORT_MEM_ADDR_/*", ""])
def test_a_graph_reads_no_file_that_nobody_vouches_for(
    tmp_path: Path, home: Callable[[bytes], bytes], location: str
) -> None:
    (tmp_path / "secret").write_bytes(b"SECRET12")
    hostile = home(external(location.format(secret=tmp_path / "secret")))
    root = write(tmp_path / "b", stages=(hostile, b""))
    (root / "sub").mkdir()
    (root / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(BundleError, match=r"graph '1.onnx' .* refused: its tensor 'w' is in .* no file that"):
        Bundle.open(root).runtime(0)


def test_files_nobody_vouches_for_are_not_read(tmp_path: Path) -> None:
    client = {"networks": {"onnx-stages": ["1.onnx", "2.onnx"]}, "weights": "../secret.bin", "policies": "shared.json"}
    with pytest.raises(BundleError, match=r"no file '../secret.bin' .*among those"):
        Bundle.open(write(tmp_path / "b", clients={"0": client}))
    text = {"kind": "text", "length": 3, "tokens": 5, "vocabulary": "../words.json"}
    with pytest.raises(BundleError, match=r"no file '../words.json' .*among those"):
        Bundle.open(write(tmp_path / "text", inputs=text))


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    root = write(tmp_path / "b", stages=(in_graph(external("0.bin")),) * 2)
    (root / "0.bin").write_bytes(np.array([1, np.nan], dtype=np.float32).tobytes())
    manifest = json.loads((root / "bundle.json").read_text())
    (root / "bundle.json").write_text(json.dumps(manifest | {"files": vouch(root)}))
    for load in (lambda b: b.tensors(0), lambda b: b.runtime(0)):
        with pytest.raises(BundleError, match="has numbers that are not finite"):
            load(Bundle.open(root))


def test_unknown_client_and_format(tmp_path: Path) -> None:
    bundle = Bundle.open(write(tmp_path / "b"))
    with pytest.raises(BundleError, match="no client 5; it has: 0-2, 7"):
        bundle.runtime(5)
    with pytest.raises(BundleError, match="no format 'onnx-if'; it has: onnx-stages"):
        bundle.runtime(0, "onnx-if")
    with pytest.raises(BundleError, match="share no graphs"):
        bundle.runtime(0, sharing=True)


IMAGE = {"kind": "image", "shape": [1, 2, 2], "scale": 255, "mean": 0.5, "std": 0.5}
CLIENT = {"networks": {"onnx-stages": ["1.onnx", "2.onnx"]}, "weights": "0.bin", "policies": "shared.json"}
OWN = {"name": "weight", "type": "float32", "shape": [2], "offset": 0}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"bundle": 1}, "version 1; this runtime reads 2"),
        ({"bundle": True}, "bundle is True"),
        ({"macs": None}, "macs is None; allowed: a list"),
        ({"macs": []}, "macs; allowed: whole numbers that rise"),
        ({"macs": [2, 1]}, "macs; allowed: whole numbers that rise"),
        ({"macs": [1, 2.5]}, "macs; allowed: whole numbers that rise"),
        ({"macs": [1, 2, 3]}, "names 2 graphs; allowed: 3"),
        ({"classes": "ab"}, "classes is 'ab'; allowed: a list"),
        ({"classes": [1]}, "classes; allowed: at least one name"),
        ({"formats": {"onnx-stages": 1}}, "formats is .*; allowed: a list"),
        ({"formats": []}, "formats; allowed: some of onnx-stages, onnx-if, executorch"),
        ({"formats": [["onnx-stages"]]}, "formats; allowed: some of"),
        ({"inputs": {}}, "it lacks 'inputs/kind'"),
        ({"inputs": []}, "inputs is .*; allowed: an object"),
        ({"inputs": IMAGE | {"kind": "sound"}}, "inputs/kind is 'sound'; allowed: image, text"),
        ({"inputs": IMAGE | {"scale": 0}}, "scale and std above 0"),
        ({"inputs": IMAGE | {"scale": float("nan")}}, "scale and std above 0"),
        ({"inputs": IMAGE | {"std": "1"}}, "scale and std above 0"),
        ({"inputs": IMAGE | {"shape": [1 << 20] * 3}}, "channels, height and width"),
        ({"inputs": {"kind": "text", "length": 0, "tokens": 2, "vocabulary": None}}, "whole numbers from 1"),
        ({"files": ["0.bin"]}, "files is .*; allowed: an object"),
        ({"files": {"a\0b": {"sha256": "0" * 64, "bytes": 1}}}, r"files names 'a\\x00b'"),
        ({"files": {"": {"sha256": "0" * 64, "bytes": 1}}}, "files names ''"),
        ({"files": {"0.bin": None}}, "files/0.bin is None"),
        ({"files": {"0.bin": {"sha256": "x", "bytes": 1}}}, "64 hex digits"),
        ({"clients": {}}, "clients; allowed: at least one"),
        ({"clients": {"x": CLIENT}}, "clients has 'x'; allowed: numbers from 0"),
        ({"clients": {"01": CLIENT}}, "clients has '01'"),
        ({"clients": {"-1": CLIENT}}, "clients has '-1'"),
        ({"clients": {"0": CLIENT | {"networks": {"onnx-stages": ["1.onnx"]}}}}, "names 1 graphs; allowed: 2"),
        ({"clients": {"0": CLIENT | {"networks": {}}}}, "it lacks 'clients/0/networks/onnx-stages'"),
        ({"clients": {"0": "0.npz"}}, "it lacks 'clients/0/networks/onnx-stages'"),
        ({"personal": [OWN | {"shape": [1 << 31]}]}, "need 8589934592 bytes, but its file has 8"),
        ({"personal": [OWN | {"type": "object"}]}, "personal has"),
        ({"personal": [OWN | {"offset": -4}]}, "personal has"),
        ({"together": ["1.onnx"]}, "together names 1 graphs; allowed: 2"),
        ({"policies": None}, "no file None"),
    ],
)
def test_manifests_that_cannot_be_used(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(BundleError, match=why):
        Bundle.open(write(tmp_path / "b", **changes))


@pytest.mark.parametrize("content", ["", "{", "[]", "7", "[" * 100_000, '{"a":' * 100_000, "\xff", "NaN"])
def test_what_is_no_bundle(tmp_path: Path, content: str) -> None:
    with pytest.raises(BundleError, match="is not a bundle"):
        Bundle.open(tmp_path)
    (tmp_path / "bundle.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(BundleError, match=r"is not a bundle|damaged") as caught:
        Bundle.open(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[" * 100_000, "cannot be read"),
        ("[]", "cannot be used"),
        ('{"default": {}}', "it lacks 'policy'"),
        ('{"default": {"policy": {"kind": "fixed", "exit": 3}, "macs": 1, "accuracy": 1}}', "the network has 2"),
        ('{"default": {"policy": {"kind": "fixed", "exit": 1}, "macs": "1", "accuracy": 1}}', "macs is '1'"),
        ("{}", "no policy 'default'"),
    ],
)
def test_policies_that_cannot_be_used(tmp_path: Path, content: str, why: str) -> None:
    root = write(tmp_path / "b")
    (root / "shared.json").write_text(content)
    manifest = json.loads((root / "bundle.json").read_text())
    (root / "bundle.json").write_text(json.dumps(manifest | {"files": vouch(root)}))
    with pytest.raises(BundleError, match=why):
        Bundle.open(root).policies(0)


def test_a_file_that_is_no_graph(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"ONNX Runtime does not load '1.onnx'"):
        Bundle.open(write(tmp_path / "b")).runtime(0)
