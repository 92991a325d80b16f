"""One ONNX file per client with everything in it: weights, names of classes, preprocessing, a policy to start with.

The graph is the one with nested `If`s. Its policy has default values, so `inputs` alone is enough to run it; the
others may be given to decide otherwise.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

from xfed.errors import InputError
from xfed.export.bundle import CARD, Contents, contents_of, refuse_existing, write_bundle
from xfed.files import whole
from xfed.running import Run
from xfed_runtime.bundle import Bundle
from xfed_runtime.policy import Policy, PolicyError
from xfed_runtime.sessions import in_graph_words


def export_standalone(run: Run, clients: Sequence[int], out: Path) -> None:
    """Write a file for each of some clients of a finished run, and the model card."""
    refuse_existing(out)
    write_standalone(contents_of(run, clients), out)


def write_standalone(contents: Contents, out: Path) -> None:
    """Write the files into a folder that has nothing yet."""
    refuse_existing(out)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bundle"
        write_bundle(contents, ["onnx-if"], path)
        bundle = Bundle.open(path)
        for client in bundle.clients:
            (graph,) = bundle.manifest.clients[client].networks["onnx-if"]
            model = onnx.load(path / graph)
            _complete(model, bundle, bundle.policies(client)["default"].policy)
            with whole(out / f"client-{client:06d}.onnx") as temporary:
                temporary.write_bytes(model.SerializeToString(deterministic=True))
        shutil.copyfile(path / CARD, out / CARD)


def _complete(model: ModelProto, bundle: Bundle, policy: Policy) -> None:
    """Give the policy's inputs default values, and note in the file what one must know to use it."""
    try:
        thresholds, signal = in_graph_words(policy, len(bundle.macs))
    except PolicyError as error:
        raise InputError(f"the default policy does not go into a single file: {error}") from None
    running = np.array(policy.answer == "running")
    for name, value in (("thresholds", thresholds), ("signal", signal), ("running", running)):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    noted = {name: bundle.manifest.content[name] for name in ("classes", "inputs", "macs", "card")}
    vocabulary = noted["inputs"].get("vocabulary")
    if vocabulary is not None:
        noted["vocabulary"] = bundle.json(vocabulary)
    helper.set_model_props(model, {name: json.dumps(value, ensure_ascii=False) for name, value in noted.items()})
