"""Published pickles are read without ever being executed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.published import Touch, malicious, python2_pickle
from xfed.data.raw.pickles import KNOWN, read_pickle
from xfed.errors import InputError

PIXELS = np.arange(6, dtype=np.uint8).reshape(2, 3)


def test_python_2_pickle() -> None:
    read = read_pickle(python2_pickle({"data": PIXELS, "labels": [3, 4], "names": [b"cat"]}), "f")
    np.testing.assert_array_equal(read["data"], [[0, 1, 2], [3, 4, 5]])
    assert read["data"].dtype == np.uint8
    assert (read["labels"], read["names"]) == ([3, 4], [b"cat"])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("array", [PIXELS, np.asfortranarray(PIXELS), PIXELS.astype(">i4"), PIXELS.astype("f8")])
def test_python_3_pickles_of_every_protocol(protocol: int, array: Any) -> None:
    read = read_pickle(pickle.dumps({"data": array, "b": b"\xff", "n": (1, 2.5, None, True)}, protocol), "f")
    np.testing.assert_array_equal(read["data"], array)
    assert read["data"].dtype == array.dtype
    assert read["b"] == b"\xff"
    assert read["n"] == (1, 2.5, None, True)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_tries_to_run_code_is_refused(tmp_path: Path, protocol: int) -> None:
    with pytest.raises(InputError, match="pickle 'some/file' cannot be used: it asks for "):
        read_pickle(malicious(tmp_path / "ran", protocol), "some/file")
    assert not (tmp_path / "ran").exists()


ATTACKS = {
    "by os.system": b"cos\nsystem\n(S'true'\ntR.",
    "by eval": b"c__builtin__\neval\n(S'1'\ntR.",
    "by a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x12ndarray.__new__.x\x93.",
    "by the INST opcode": b"(S'true'\nios\nsystem\n.",
    "an array of objects": pickle.dumps({"data": np.array([Touch(Path("x"))], dtype=object)}, 2),
    "a forged object type": (
        b"}(U\x04datacnumpy\ndtype\n(U\x01OK\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tbu."
    ),
    "a record type": pickle.dumps({"data": np.zeros(1, dtype=[("a", "i4")])}, 2),
    "attributes of what it may call": b"cnumpy\nndarray\n}(U\x05colorU\x03redub.",
    "too few bytes": python2_pickle({"data": PIXELS}).replace(b"J\x02\x00\x00\x00", b"J\x09\x00\x00\x00"),
    "another codec": b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.",
    "an array without content": (
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btRs."
    ),
    "what it may only call, made by itself": b"\x80\x02cnumpy\nndarray\n)\x81.",
    "no dict": pickle.dumps([1]),
    "persistent ids": b"Pid\n.",
    "nothing": b"",
    "noise": bytes(range(256)),
    "cut short": python2_pickle({"data": PIXELS})[:-20],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_malformed_and_forged_pickles_are_refused(attack: str) -> None:
    before = {name: dict(vars(known)) for name, known in KNOWN.items()}
    with pytest.raises(InputError, match=r"pickle 'f' cannot be used: .*allowed: a dict of arrays"):
        read_pickle(ATTACKS[attack], "f")
    assert {name: vars(known) for name, known in KNOWN.items()} == before
