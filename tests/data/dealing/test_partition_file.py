"""Partitions as files that people write: both forms, and what is wrong with bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from xfed.data.dealing.partition import Partition, Split
from xfed.data.dealing.partition_file import read_partition
from xfed.errors import InputError


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


PLAIN = Partition.of([Split(array(3, 1), array(2), array(0)), Split(array(9), array(), array(7, 8))])
SHARED = Partition.of([Split(array(3, 1), array(2), array(0)), Split(array(1), array(3), array(0, 8))], True)


@pytest.mark.parametrize("partition", [PLAIN, SHARED])
@pytest.mark.parametrize("form", ["json", "safetensors"])
def test_both_forms_are_read_back(tmp_path: Path, partition: Partition, form: str) -> None:
    path = tmp_path / f"p.{form}"
    if form == "json":
        path.write_text(json.dumps(partition.to_json()))
    else:
        partition.save(path)
    read = read_partition(path, 10)
    assert read.to_json() == partition.to_json()
    assert read.overlapping == partition.overlapping


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nonsense", "is not a JSON object"),
        ("[]", "is not a JSON object"),
        ('{"clients": []}', "names no client"),
        ('{"clients": [{"train": [1], "test": []}]}', "client 0 has an empty test list"),
        ('{"clients": [{"train": [1], "test": [2]}, {"test": [3]}]}', "client 1 has an empty train list"),
        ('{"clients": [{"train": [1], "test": [400]}]}', "client 0 has index 400; allowed: 0 to 399"),
        ('{"clients": [{"train": [1], "test": [2]}, {"train": [3], "test": [-1]}]}', "client 1 has index -1"),
        ('{"clients": [{"train": [1], "test": [4294967298]}]}', "a number of more than 32 bits"),
        ('{"clients": [{"train": [1], "test": [36893488147419103232]}]}', "is not a JSON object"),
        (
            '{"clients": [{"train": [1], "test": [2]}, {"train": [3], "test": [1]}]}',
            "index 1 is used twice, by clients 0 and 1; each sample may be used once, unless",
        ),
        ('{"clients": [{"train": [1.5], "test": [2]}]}', "of whole numbers"),
        ('{"clients": [{"train": [true], "test": [2]}]}', "of whole numbers"),
        ('{"overlapping": 1, "clients": [{"train": [1], "test": [2]}]}', "'overlapping' is neither true nor false"),
        ('{"overlapping": true, "clients": [{"train": [1, 5, 5], "test": [2]}]}', "client 0 has index 5 twice"),
        (
            '{"overlapping": true, "clients": [{"train": [1], "test": [2]}, {"train": [3], "test": [1]}]}',
            "index 1 is trained on by one client and tested on by another",
        ),
        (
            '{"overlapping": true, "clients": [{"train": [1], "calibration": [2], "test": [4]}, '
            '{"train": [3], "test": [2]}]}',
            "index 2 is trained on by one client and tested on by another",
        ),
    ],
)
def test_bad_files_are_told(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_partition(tmp_path / "p.json", 400)


def test_the_binary_form_is_checked_too(tmp_path: Path) -> None:
    PLAIN.save(tmp_path / "p.safetensors")
    with pytest.raises(InputError, match="client 1 has index 9; allowed: 0 to 8"):
        read_partition(tmp_path / "p.safetensors", 9)
    Partition(SHARED.indices, SHARED.bounds).save(tmp_path / "p.safetensors")
    with pytest.raises(InputError, match="index 0 is used twice, by clients 0 and 1"):
        read_partition(tmp_path / "p.safetensors", 10)


def test_clients_of_later_blocks_are_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xfed.data.dealing.partition.CLIENTS_TOGETHER", 2)
    good = Split(array(1, 2), array(), array(3))
    for bad, sentence in (
        (Split(array(1, 5, 5), array(), array(3)), "client 5 has index 5 twice"),
        (Split(array(1), array(), array(2)), "index 2 is trained on by one client and tested on by another"),
        (Split(array(1), array(), array(10)), "client 5 has index 10; allowed: 0 to 9"),
    ):
        Partition.of([good] * 5 + [bad], True).save(tmp_path / "p.safetensors")
        with pytest.raises(InputError, match=sentence):
            read_partition(tmp_path / "p.safetensors", 10)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    for name in ("p.json", "p.safetensors"):
        with pytest.raises(InputError, match="does not exist"):
            read_partition(tmp_path / name, 10)
