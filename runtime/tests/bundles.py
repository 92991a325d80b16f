"""Small bundles without graphs that a network could run, and ONNX files written byte by byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def vouch(root: Path) -> dict[str, dict[str, Any]]:
    """Note every file of a folder as a manifest does."""
    return {
        path.relative_to(root).as_posix(): {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "bytes": path.stat().st_size,
        }
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "bundle.json"
    }


def write(root: Path, stages: tuple[bytes, bytes] = (b"", b""), **changes: Any) -> Path:
    """Write a bundle of two exits and clients 0, 1, 2 and 7; `changes` replace entries of the manifest."""
    root.mkdir()
    (root / "0.bin").write_bytes(b"\0\0\x80?" * 2)
    for number, content in enumerate(stages, 1):
        (root / f"{number}.onnx").write_bytes(content)
    mine = {"policy": {"kind": "confidence", "threshold": 0.5}, "macs": 3.5, "accuracy": 0.75}
    (root / "shared.json").write_text(json.dumps({"default": mine | {"macs": None, "accuracy": None}, "other": mine}))
    (root / "own.json").write_text(json.dumps({"default": mine}))
    client = {"networks": {"onnx-stages": ["1.onnx", "2.onnx"]}, "weights": "0.bin", "policies": "shared.json"}
    manifest = {
        "bundle": 2,
        "classes": ["a", "b"],
        "macs": [1, 2],
        "inputs": {"kind": "image", "shape": [1, 2, 2], "scale": 255, "mean": 0.5, "std": 0.5},
        "formats": ["onnx-stages"],
        "personal": [{"name": "weight", "type": "float32", "shape": [2], "offset": 0}],
        "together": None,
        "clients": {"0": client, "1": client, "2": client, "7": client | {"policies": "own.json"}},
        "policies": "shared.json",
        "files": vouch(root),
    }
    (root / "bundle.json").write_text(json.dumps(manifest | changes))
    return root


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """Encode a protobuf message: numbers and bytes by field."""
    content = b""
    for number, value in fields:
        if isinstance(value, int):
            content += _varint(number << 3) + _varint(value)
        else:
            content += _varint(number << 3 | 2) + _varint(len(value)) + value
    return content


def _varint(value: int) -> bytes:
    content = b""
    while value > 127:
        content += bytes([value & 127 | 128])
        value >>= 7
    return content + bytes([value])


def external(location: str, **more: str) -> bytes:
    """A tensor of two floats in another file."""
    entries = [(13, message((1, key.encode()), (2, value.encode()))) for key, value in more.items()]
    entries.append((13, message((1, b"location"), (2, location.encode()))))
    return message((1, 2), (2, 1), (8, b"w"), (14, 1), *entries)


def in_graph(tensor: bytes) -> bytes:
    """An ONNX file with an initializer."""
    return message((1, 10), (7, message((5, tensor))))


def in_branch(tensor: bytes) -> bytes:
    """An ONNX file with an initializer in a branch of an `If` in a branch of an `If`."""
    inner = message((5, tensor))
    for _ in range(2):
        inner = message((1, message((4, b"If"), (5, message((1, b"then_branch"), (6, inner))))))
    return message((7, inner))


def in_attribute(tensor: bytes) -> bytes:
    """An ONNX file with a constant as a node's attribute, in a list."""
    return message((7, message((1, message((4, b"Constant"), (5, message((10, tensor))))))))


def in_sparse(tensor: bytes) -> bytes:
    """An ONNX file with a sparse initializer."""
    return message((7, message((15, message((1, tensor))))))


HOMES = (in_graph, in_branch, in_attribute, in_sparse)
"""Where a tensor can stand."""
