"""Data that cannot be used: partitions, arrays, folders of images, and plug-ins that make data."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.mishaps.mishap import SMALL, Mishap, Prepare, cut, each, folder, text, values

X = np.arange(60 * 8 * 8, dtype=np.uint8).reshape(60, 8, 8)
Y = np.arange(60) % 3


def partition(name: str, content: Any, sentence: str) -> Mishap:
    """A partition file of this content."""
    return Mishap(name, "run --partition p.json", rf"'p\.json'.*{sentence}", values("p.json", content))


def one(**client: Any) -> dict[str, Any]:
    """A partition of one client."""
    return {"clients": [{"train": [0, 1], "test": [2], **client}]}


def tensors(**changes: Any) -> Prepare:
    """A run's partition file, with some tensors otherwise; nothing leaves one out."""
    plain = {"indices": torch.arange(4, dtype=torch.int32), "bounds": torch.tensor([0, 2, 2, 4])}
    found = {**plain, "overlapping": torch.tensor(False), **changes}
    kept = {name: tensor for name, tensor in found.items() if tensor is not None}
    return lambda root: save_file(kept, root / "p.safetensors")


STORED = "run --partition p.safetensors"
PARTITIONS = [
    Mishap("no partition", "run --partition no.json", r"partition file 'no\.json' does not exist"),
    Mishap("a folder", "run --partition p.json", r"'p\.json' cannot be used: it is a folder", folder("p.json")),
    Mishap(
        "binary", "run --partition p.json", r"not a JSON object .*can't decode byte 0xff", text("p.json", b"\xff\xfe{")
    ),
    Mishap(
        "cut short", "run --partition p.json", r"of whole numbers: Expecting", text("p.json", '{"clients": [{"train"')
    ),
    Mishap("deep", "run --partition p.json", r"'p\.json' is nested too deeply", text("p.json", "[" * 100000)),
    partition("no clients named", {"overlapping": True}, r"of whole numbers: 'clients'"),
    partition("clients of no form", {"clients": "nonsense"}, r"of whole numbers: client 0 has 'n'; allowed: train"),
    partition("no client", {"clients": []}, "names no client"),
    partition("an unknown key", {**one(), "alpha": 1}, r"the file has 'alpha'; allowed: clients, overlapping"),
    partition("a misspelt part", one(trian=[3]), r"client 0 has 'trian'; allowed: train, calibration, test"),
    partition("an index too high", one(test=[1797]), "client 0 has index 1797; allowed: 0 to 1796"),
    partition("an index below 0", one(test=[-1]), "client 0 has index -1; allowed"),
    partition("an index twice", one(train=[0, 0]), "index 0 .*twice"),
    partition("nothing to train on", one(train=[]), "client 0 has an empty train list"),
    partition("nothing to test on", one(test=[]), "client 0 has an empty test list"),
    partition("half an index", one(train=[0.5]), r"\[0\.5\] holds something else"),
    partition("true as an index", one(train=[True]), r"\[True\] holds something else"),
    partition("a large index", one(train=[2**40]), "holds a number of more than 32 bits"),
    partition("overlapping of no form", {**one(), "overlapping": "yes"}, "'overlapping' is neither true nor false"),
    Mishap(
        "a share beside lists",
        "run --partition p.json --calibration 0.1",
        r"calibration is 0\.1, but partition file 'p\.json' lists calibration samples of its own; leave it out, or at",
        values("p.json", one(calibration=[3])),
    ),
    Mishap(
        "another number of clients",
        "run --partition p.json --clients 7",
        r"partition file 'p\.json' has 1 clients, but clients is 7",
        values("p.json", one()),
    ),
    Mishap(
        "bounds that do not fit", STORED, r"damaged: its bounds do not fit", tensors(bounds=torch.tensor([0, 2, 2, 9]))
    ),
    Mishap("wide indices", STORED, r"indices are int64 and bounds int64", tensors(indices=torch.arange(4))),
    Mishap("no bounds", STORED, r"p\.safetensors' is damaged: 'bounds'", tensors(bounds=None)),
    Mishap("stored, cut short", STORED, r"is damaged: .*(incomplete|header)", each(tensors(), cut("p.safetensors"))),
]


def arrays(name: str, sentence: str, **content: Any) -> Mishap:
    """Arrays in an .npz file."""
    return Mishap(
        name,
        f"run --dataset npz --npz.path a.npz {SMALL}",
        rf"'a\.npz' {sentence}",
        lambda root: np.savez(root / "a.npz", **content),
    )


SAME = {"x": X, "y": Y * 0}
NAN, ENDLESS = np.ones((60, 8, 8), np.float32), np.ones((60, 8, 8), np.float32)
NAN[17, 3, 3] = np.nan
ENDLESS[5] = np.inf
ARRAYS = [
    Mishap("no path", "run --dataset npz", r"npz\.path is None: give the \.npz file with arrays x and y"),
    Mishap("no arrays", "run --dataset npz --npz.path no.npz", r"npz\.path 'no\.npz' is not a file"),
    Mishap(
        "no zip",
        "run --dataset npz --npz.path a.npz",
        r"'a\.npz' is not a whole \.npz file of plain arrays: File is not a zip file",
        text("a.npz", "hello"),
    ),
    Mishap(
        "arrays cut short",
        "run --dataset npz --npz.path half.npz",
        r"'half\.npz' is not a whole \.npz file of plain arrays: File is not a zip",
        each(lambda root: np.savez(root / "half.npz", x=X, y=Y), cut("half.npz")),
    ),
    arrays("objects", "is not a whole .npz file of plain arrays: Object arrays", x=np.array([{}] * 60), y=Y),
    Mishap(
        "one class",
        f"run --dataset npz --npz.path a.npz {SMALL}",
        r"data set 'npz' has one class, which needs no answer; allowed: two or more",
        lambda root: np.savez(root / "a.npz", **SAME),
    ),
    arrays("no y", "has no array 'y'; it has: x", x=X),
    arrays("labels with gaps", "has 3 different labels in y, from 0 to 2,000,000, but none is 1;", x=X, y=Y * 1000000),
    arrays("labels below 0", "has labels from -1 to 1; allowed: 0 to 1", x=X, y=Y - 1),
    arrays("half labels", "has y of float64", x=X, y=Y / 2),
    arrays("NaN", "has x that is NaN in sample 17, and not finite in 1 of 60 samples; mend or drop", x=NAN, y=Y),
    arrays("infinite", "has x that is infinite in sample 5, and not finite in 1 of 60", x=ENDLESS, y=Y),
    arrays("a shape", r"has x of uint8 and shape \(60, 64\); allowed: images", x=X.reshape(60, 64), y=Y),
    arrays("clients of another shape", r"has client of shape \(2,\); allowed: \(60,\), as y", x=X, y=Y, client=Y[:2]),
]


def picture(name: str, side: int = 8) -> Prepare:
    """Write an image."""

    def prepare(root: Path) -> None:
        content = io.BytesIO()
        Image.new("RGB", (side, side), "red").save(content, "PNG")
        text(name, content.getvalue())(root)

    return prepare


IMAGES = f"run --dataset folder --folder.path pics {SMALL}"
FOLDERS = [
    Mishap("no folder", IMAGES, r"folder\.path 'pics' is not a folder"),
    Mishap("no classes", IMAGES, r"'pics' holds no folder; allowed: one folder of images per class", folder("pics")),
    Mishap(
        "an empty class", IMAGES, r"class folder 'pics/a' is empty", each(folder("pics/a"), picture("pics/b/1.png"))
    ),
    Mishap(
        "no image",
        IMAGES,
        r"'pics/a/1\.png' does not decode: its format is unknown",
        text("pics/a/1.png", "no image at all"),
    ),
    Mishap(
        "an image cut short",
        IMAGES,
        r"'pics/a/2\.png' does not decode: .*truncated",
        each(picture("pics/a/2.png"), cut("pics/a/2.png")),
    ),
    Mishap(
        "images of two sizes",
        IMAGES,
        r"'pics/b/1\.png' has 9 × 9 pixels, the first one 8 × 8; make them equal or set folder\.size",
        each(picture("pics/a/1.png"), picture("pics/b/1.png", 9)),
    ),
]
HEAD = "import numpy as np, torch, xfed\n"


def made(name: str, code: str, sentence: str) -> Mishap:
    """A data set of a plug-in."""
    return Mishap(
        name,
        f"run --plugin mine.py --dataset clumsy {SMALL}",
        sentence,
        text("mine.py", f"{HEAD}@xfed.dataset('clumsy')\n{code}"),
    )


def returning(inputs: str, labels: str = "torch.arange(60) % 3") -> str:
    """The code of a function that returns a data set."""
    return f"def mine(): return xfed.Dataset('clumsy', {inputs}, {labels}, ('a', 'b', 'c'), 1.0, 0.0, 1.0)\n"


MADE = [
    made(
        "nothing made",
        "def mine(): return None",
        "the function of data set 'clumsy' returned NoneType; allowed: a Dataset",
    ),
    made(
        "a function with needs",
        "def mine(path): ...",
        "the function of data set 'clumsy' needs path; allowed: a function",
    ),
    made(
        "NaN that was made",
        returning("torch.full((60, 1, 8, 8), float('nan'))"),
        "data set 'clumsy' is NaN in sample 0, and not finite in 60 of 60 samples",
    ),
    made(
        "labels too high",
        returning("torch.ones(60, 1, 8, 8)", "torch.arange(60) % 5"),
        "has labels from 0 to 4; allowed",
    ),
    made("fewer labels", returning("torch.ones(60, 1, 8, 8)", "torch.arange(9) % 3"), "has 60 inputs but 9 labels"),
    made("no samples", returning("torch.ones(0, 1, 8, 8)", "torch.arange(0)"), "data set 'clumsy' is empty"),
]
CASES = PARTITIONS + ARRAYS + FOLDERS + MADE
