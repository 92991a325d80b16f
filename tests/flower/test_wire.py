"""Words as Flower records: bits are kept, what is shared is stored once, what does not fit is refused."""

from __future__ import annotations

import json

import pytest
import torch

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from xfed.flower.wire import RAW, from_records, to_records
from xfed.protocol.message import Message, WireError
from xfed.protocol.words import TrainTask

ODD = torch.tensor([1.0, -0.0, float("inf"), 1e-45])
BACKBONE = torch.cat([ODD, torch.arange(2000.0)])


def records(**array: object) -> RecordDict:
    fields = {"dtype": "float32", "shape": (2,), "stype": RAW, "data": bytes(8), **array}
    words = {"xfed": 1, "words": [{"word": "train", "client": 1, "round": 1, "state": None, "message": None}]}
    words["words"][0]["message"] = {"tensors": {"backbone": 0}, "values": {}}  # type: ignore[index]
    said = ConfigRecord({"federation": "f", "words": json.dumps(words)})
    return RecordDict({"xfed": said, "tensors": ArrayRecord({"0": Array(**fields)})})  # type: ignore[call-overload]


def test_there_and_back() -> None:
    tasks = [
        TrainTask(c, 2, Message({"bias": ODD, "backbone": BACKBONE, "own": torch.full((1, 2), c)}, {"k": [c]}), 1)
        for c in (3, 4)
    ]
    sent = to_records("f", tasks)
    sizes = [len(array.data) for array in sent.array_records["tensors"].values()]
    assert sizes == [4 * 2004, 4 * 4 + 2 * 8 * 2], "the backbone once, and what is small together"
    back = from_records(sent, "f")
    assert [(t.client, t.round, t.state, t.message.values) for t in back] == [
        (3, 2, 1, {"k": [3]}),
        (4, 2, 1, {"k": [4]}),
    ]  # type: ignore[attr-defined]
    for sent_task, task in zip(tasks, back, strict=True):
        for name, tensor in sent_task.message.tensors.items():
            found = task.message.tensors[name]  # type: ignore[attr-defined]
            assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
            assert found.numpy().tobytes() == tensor.numpy().tobytes()


def test_what_fits_is_taken() -> None:
    [task] = from_records(records(), "f", limit=8)
    assert task.message.tensors["backbone"].tolist() == [0, 0]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        ({"shape": (10**12,)}, r"an array of shape \(1000000000000,\) and float32 with 8 bytes"),
        ({"shape": (-2,)}, "an array of shape"),
        ({"dtype": "object"}, "an array of an unknown kind"),
        ({"stype": "numpy.ndarray"}, "an array of an unknown kind"),
        ({"shape": (4,), "data": bytes(16)}, "16 bytes, where 8 are allowed"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_allocated(array: dict[str, object], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        from_records(records(**array), "f", limit=8)


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        ({"0": ["float32", [1]]}, "small tensors of 4 bytes with 8 bytes"),
        ({"0": ["float32", [10**12]]}, "small tensors of 4,000,000,000,000 bytes with 8 bytes"),
        ({"0": ["float32", [-2]], "1": ["float32", [4]]}, "an array of shape"),
        ({"0": ["object", [1]]}, "not described"),
        ({"0": "float32"}, "not described"),
        ([1], "not described"),
        (None, "small tensors of 0 bytes with 8 bytes"),
    ],
)
def test_small_tensors_that_do_not_fit(described: object, reason: str) -> None:
    sent = to_records("f", [TrainTask(1, 1, Message({"backbone": torch.zeros(2)}, {}), None)])
    plain = json.loads(str(sent.config_records["xfed"]["words"])) | {"small": described}
    sent.config_records["xfed"]["words"] = json.dumps(plain)
    with pytest.raises(WireError, match=reason):
        from_records(sent, "f", limit=8)


def test_words_of_another_federation_and_no_words() -> None:
    with pytest.raises(WireError, match="a message of federation 'f'; this one is 'g'"):
        from_records(records(), "g")
    with pytest.raises(WireError, match="without words"):
        from_records(RecordDict({"xfed": ConfigRecord({"federation": "f"})}), "f")
    with pytest.raises(WireError, match="no JSON"):
        from_records(RecordDict({"xfed": ConfigRecord({"federation": "f", "words": "{"})}), "f")
