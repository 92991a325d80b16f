"""Words keep every bit through bytes, share what they share, and refuse what they cannot understand."""

from __future__ import annotations

import json
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xfed.protocol.message import Message, WireError, pack, unpack
from xfed.protocol.words import (
    Briefing,
    ClientState,
    Evaluated,
    EvaluateTask,
    Failed,
    Trained,
    TrainTask,
    Word,
    from_bytes,
    to_bytes,
)

BACKBONE = torch.arange(1000.0)
WORDS: list[Word] = [
    Briefing(
        {"method": "xfed", "training": {"lr": 0.1}},
        {"a.py": "x = 1\n"},
        {"name": "d"},
        Message(),
        {"set": "standard"},
        7,
    ),
    TrainTask(3, 2, Message({"backbone": BACKBONE}, {"round": 2, "students": [0, 2]}), None),
    EvaluateTask(4, 2, Message({"backbone": BACKBONE}), 1, final=True, traces=False, model=True),
    ClientState(3, 1, Message({"shallow_exits": torch.ones(4)})),
    Trained(3, Message({"last_exit": torch.zeros(0)}, {"samples": 5}), 0.1 + 0.2, 10**15, True),
    Evaluated(
        4,
        9,
        {"own": (1, 2, 3), "running": (1, 2, 4)},
        0,
        False,
        {"test": Message({"labels": torch.arange(9)})},
        Message(),
        ("backbone",),
    ),
    Failed(5, "failed: Größe", "timeout"),
]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Message):
        return (
            one.values == other.values
            and one.tensors.keys() == other.tensors.keys()
            and all(
                torch.equal(one.tensors[name], other.tensors[name])
                and one.tensors[name].dtype == other.tensors[name].dtype
                for name in one.tensors
            )
        )
    if isinstance(one, Word):
        return type(one) is type(other) and all(same(vars(one)[name], vars(other)[name]) for name in vars(one))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return bool(one == other)


def test_every_word_through_bytes() -> None:
    again = from_bytes(to_bytes(WORDS))
    assert all(same(one, other) for one, other in zip(WORDS, again, strict=True))


def test_what_words_share_is_encoded_once() -> None:
    tasks = [TrainTask(client, 1, Message({"backbone": BACKBONE}), None) for client in range(30)]
    assert len(to_bytes(tasks)) < 3 * BACKBONE.nbytes
    first, *_, last = from_bytes(to_bytes(tasks))
    assert isinstance(first, TrainTask)
    assert isinstance(last, TrainTask)
    assert torch.equal(last.message.tensors["backbone"], BACKBONE)


def test_nothing_large_is_read_at_all() -> None:
    data = to_bytes(WORDS)
    assert from_bytes(data, limit=len(data))
    with pytest.raises(WireError, match=r"bytes, where 1,000 are allowed"):
        from_bytes(data, limit=1000)


def said(**changes: Any) -> bytes:
    plain, tensors = unpack(to_bytes([WORDS[1]]))
    plain["words"][0].update(changes)
    return pack(plain, tensors)


@pytest.mark.parametrize(
    ("data", "phrase"),
    [
        (b"", "cannot be decoded"),
        (b"hello, this is no message at all", "cannot be decoded"),
        (safetensors.torch.save({"0": torch.zeros(1)}), "cannot be decoded"),
        (pack({"words": []}, []), "KeyError: 'xfed'"),
        (pack({"xfed": 2, "words": []}, []), "words of version 2; this side speaks version 1"),
        (pack({"xfed": 1, "words": [{"word": "sudo"}]}, []), "the word 'sudo', which is not known"),
        (pack({"xfed": 1, "words": [3]}, []), "AttributeError"),
        (pack({"xfed": 1, "words": ["no word"]}, []), "AttributeError"),
        (said(traces=[]), "traces"),
        (said(client="three"), "client: Input should be a valid integer"),
        (said(path="/etc/passwd"), "path: Unexpected keyword argument"),
        (said(message={"tensors": {"backbone": 7}, "values": {}}), "IndexError"),
        (said(message={"tensors": {"backbone": -1}, "values": {"a": "b"}}), "value 'a' is no number"),
        (said(message=None), "message"),
    ],
)
def test_what_cannot_be_understood_is_refused_in_a_phrase(data: bytes, phrase: str) -> None:
    with pytest.raises(WireError, match=phrase):
        from_bytes(data)


@given(st.binary(max_size=300), st.integers(0, 400))
@settings(max_examples=200, deadline=None)
def test_damaged_bytes_never_raise_anything_else(noise: bytes, where: int) -> None:
    data = bytearray(to_bytes(WORDS))
    data[where : where + len(noise)] = noise
    try:
        words = from_bytes(bytes(data))
    except WireError:
        return
    assert all(isinstance(word, Word) for word in words)


def test_there_is_no_path_and_no_pickle_in_the_bytes() -> None:
    plain, _ = unpack(to_bytes(WORDS))
    assert json.loads(json.dumps(plain)) == plain
