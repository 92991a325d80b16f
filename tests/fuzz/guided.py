"""Strangers' bytes under atheris, which follows the code that they reach; it is no dependency and installed apart.

    pip install atheris
    python -m tests.fuzz.guided -max_total_time=60 -artifact_prefix=/tmp/

Whatever is read gives a value or an error in one sentence; anything else, and more than 2 GB of memory, is a finding.
Arguments are libFuzzer's.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml

atheris: Any = import_module("atheris")
with atheris.instrument_imports(include=["xfed", "xfed_runtime"]):
    from tests.data.published import cifar10_files, jpeg, write_tar, write_zip
    from tests.fuzz.mutations import outcome
    from tests.fuzz.test_data import NPZ, PARTITION, SMALL, decoded
    from tests.fuzz.test_settings_and_runs import POLICY, SETTINGS
    from tests.protocol.test_words import WORDS
    from xfed import Dataset, Experiment, InputError
    from xfed.data.dealing.partition_file import read_partition
    from xfed.data.raw.containers import open_container
    from xfed.data.raw.images import decode_rgb
    from xfed.data.raw.pickles import read_pickle
    from xfed.experiment import read_settings
    from xfed.protocol.message import Message, WireError
    from xfed.protocol.words import from_bytes, to_bytes
    from xfed_runtime.policy import Policy, PolicyError


class Reader(NamedTuple):
    """Something that reads bytes of strangers, as a file of this ending or as they are, and a sound example."""

    example: bytes
    ending: str
    read: Callable[[Any], object]


def unpack(path: Path) -> object:
    """Read all members of an archive."""
    container = open_container(path, ["top"])
    return dict(container.read(container.names()))


def archive(write: Callable[..., Path], ending: str) -> bytes:
    """Make a sound archive."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{ending}"
        write(path, "top", {"a.txt": b"one", "deep/b": b"2" * 600})
        return path.read_bytes()


READERS = [
    Reader(yaml.safe_dump(SETTINGS).encode(), ".yaml", lambda path: Experiment.from_mapping(read_settings(path))),
    Reader(json.dumps(PARTITION).encode(), ".json", lambda path: read_partition(path, 10)),
    Reader(NPZ, ".npz", lambda path: decoded("npz", path, path=path)),
    Reader(archive(write_tar, ".tar.gz"), ".tar.gz", unpack),
    Reader(archive(write_zip, ".zip"), ".zip", unpack),
    Reader(json.dumps(POLICY).encode(), ".json", lambda path: Policy.read(path).start(3)),
    Reader(cifar10_files()["data_batch_1"], "", lambda content: read_pickle(content, "x")),
    Reader(jpeg((10, 20, 30), (9, 7), "PNG"), "", lambda content: decode_rgb(content, "x")),
    Reader(SMALL.to_bytes(), "", lambda content: Dataset.from_bytes(content, SMALL.checksum())),
    Reader(to_bytes(WORDS[:1]), "", from_bytes),
    Reader(Message({"a": torch.ones(3)}, {"n": 1}).to_bytes(), "", Message.from_bytes),
]


def main() -> None:
    """Start from the sound examples; the first byte of an input says who reads the rest."""
    with tempfile.TemporaryDirectory(prefix="xfed-fuzz-") as folder:
        examples, place = Path(folder) / "examples", Path(folder) / "place"
        for path in (examples, place):
            path.mkdir()
        for number, reader in enumerate(READERS):
            (examples / str(number)).write_bytes(bytes([number]) + reader.example)

        def one(data: bytes) -> None:
            if not data:
                return
            reader, given = READERS[data[0] % len(READERS)], data[1:]
            path = place / f"x{reader.ending}"
            if reader.ending:
                path.write_bytes(given)
            outcome(lambda: reader.read(path if reader.ending else given), InputError, WireError, PolicyError)

        atheris.Setup([*sys.argv, str(examples)], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
