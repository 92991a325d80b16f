"""Proof that a bundle does what it says: the numbers are PyTorch's, and what comes after an exit is really skipped.

Skipping is read off ONNX Runtime's profile of what ran. Without optimisations every convolution and matrix product
is listed with its shapes, so the MACs that ran are counted and must be those of the exit taken, to the last one; a
graph that computes everything and picks an answer afterwards cannot pass, whatever its nodes are called. With
optimisations, as on a device, no node of a later stage may have run.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xfed.errors import InputError
from xfed.runs.reader import Run, open_run
from xfed_runtime.answers import ANSWERS, Answering, softmax
from xfed_runtime.bundle import Bundle
from xfed_runtime.measuring import measure
from xfed_runtime.policy import Policy
from xfed_runtime.runtime import Runtime
from xfed_runtime.sessions import SessionSettings

TOLERANCE = 1e-5
"""Of logits, relative to the largest where that is above 1."""

Shapes = list[list[int]]
PRODUCTS: dict[str, Callable[[Shapes, Shapes], int]] = {
    "Conv": lambda entering, left: prod(left[0]) * prod(entering[1][1:]),
    "ConvTranspose": lambda entering, left: prod(entering[0]) * prod(entering[1][1:]),
    "Gemm": lambda entering, left: prod(left[0]) * entering[0][-1],
    "MatMul": lambda entering, left: prod(left[0]) * entering[0][-1],
}
"""MACs of the operations that count (see `costs`), from the shapes in a profile."""


@dataclass(frozen=True)
class ExitCheck:
    """One exit in one format: largest difference from PyTorch, MACs that ran, time."""

    format: str
    exit: int
    difference: float
    macs: int
    executed: int
    ms: float


@dataclass(frozen=True)
class Verification:
    """What was found; no problem means that the bundle does what it says."""

    clients: Sequence[int]
    samples: int
    checks: Sequence[ExitCheck]
    problems: Sequence[str]


def verify(bundle: Bundle, run: Run, clients: int = 3, samples: int = 8) -> Verification:
    """Check every format and exit: parity for some clients on some of their test samples, skipping for the first."""
    origin = bundle.manifest["run"].get("fingerprint")
    if origin != run.environment()["fingerprint"]:
        raise InputError(f"bundle {str(bundle.root)!r} was not exported from run {str(run.path)!r}")
    places = np.linspace(0, len(bundle.clients) - 1, min(clients, len(bundle.clients))).round().astype(int)
    chosen = [bundle.clients[place] for place in places]
    references = [Reference.of(run, client, samples) for client in chosen]
    checks, problems = [], []
    for format in bundle.formats:
        differences = np.max([_differences(bundle.runtime(r.client, format), r) for r in references], axis=0)
        times = measure(bundle.runtime(chosen[0], format), repetitions=20).exits_ms
        for exit_index, macs in enumerate(bundle.macs):
            executed, problem = skipping(bundle, chosen[0], format, exit_index)
            checks.append(
                ExitCheck(format, exit_index, float(differences[exit_index]), macs, executed, times[exit_index])
            )
            if not differences[exit_index] <= TOLERANCE:
                problem = (
                    f"{format}: exit {exit_index + 1} differs from PyTorch by {differences[exit_index]:.2g}, "
                    f"more than {TOLERANCE:g}"
                )
            problems += [problem] if problem else []
    return Verification(chosen, sum(len(r.inputs) for r in references), checks, problems)


def run_of(bundle: Bundle) -> Run:
    """Open the run that a bundle says it comes from."""
    path = Path(bundle.manifest["run"].get("path", ""))
    try:
        return open_run(path)
    except InputError:
        raise InputError(
            f"the run that bundle {str(bundle.root)!r} was exported from is not at {str(path)!r}; say where with --run"
        ) from None


@dataclass(frozen=True)
class Reference:
    """Drawn inputs, and what one client's network in PyTorch says to them at every exit."""

    client: int
    inputs: NDArray[Any]
    logits: list[NDArray[np.float32]]

    @classmethod
    def of(cls, run: Run, client: int, samples: int) -> Reference:
        """Draw inputs of the run's kind: networks that agree on these are the same, and no raw data is needed."""
        raw = run.card.drawn(samples, seed=client)
        with torch.no_grad():
            found = run.model(client)(run.card.normalise(raw)).logits
        return cls(client, raw.numpy(), [found[exit_index].numpy() for exit_index in sorted(found)])


def _differences(runtime: Runtime, reference: Reference) -> list[float]:
    """Compare logits and answers, own and running, at every exit."""
    largest = []
    answering = {kind: Answering(kind) for kind in ANSWERS}
    for exit_index, logits in enumerate(reference.logits):
        found = []
        for kind in ANSWERS:
            got = runtime.predict(reference.inputs, replace(leaving_at(exit_index, runtime.exits), answer=kind))
            wanted = answering[kind].add(logits)
            if (got.exits != exit_index).any():
                found.append(np.inf)
            found.append(float(np.abs(got.logits - logits).max() / max(1, np.abs(logits).max())))
            found.append(float(np.abs(got.probabilities - wanted).max()))
            if kind == "own":
                found.append(float(np.abs(softmax(got.logits) - wanted).max()))
        largest.append(max(found))
    return largest


def leaving_at(exit_index: int, exits: int) -> Policy:
    """Make every sample leave at one exit by confidence: ε = 1 before it, 0 from there on."""
    if exits == 1:
        return Policy("fixed", exit=1)
    return Policy("confidence", threshold=tuple(float(index < exit_index) for index in range(exits - 1)))


def skipping(bundle: Bundle, client: int, format: str, exit_index: int) -> tuple[int, str | None]:
    """Count the MACs that ran for one sample leaving at an exit, and tell what is wrong with what ran, if anything."""
    plain, deployed = (_profile(bundle, client, format, exit_index, optimised) for optimised in (False, True))
    executed = sum(_macs(event["args"]) for event in plain)
    expected = bundle.macs[exit_index]
    where = f"{format}: leaving at exit {exit_index + 1}"
    if executed != expected:
        why = ": what comes later is not skipped" if executed > expected else ""
        return executed, f"{where} costs {expected:,} MACs, but ONNX Runtime executed {executed:,}{why}"
    for events in (plain, deployed):
        ran = {int(number) for event in events for number in re.findall(r"^stage(\d+)/", event["name"])}
        if ran != set(range(1, exit_index + 2)):
            return executed, f"{where} ran nodes of stages {sorted(ran)}, not of 1 to {exit_index + 1}"
    return executed, None


def _profile(bundle: Bundle, client: int, format: str, exit_index: int, optimised: bool) -> list[dict[str, Any]]:
    """Give the kernels that ran for one sample."""
    with tempfile.TemporaryDirectory() as folder:
        settings = SessionSettings(optimised=optimised, profiles=Path(folder))
        runtime = bundle.runtime(client, format, settings=settings)
        runtime.predict(bundle.inputs.example(), leaving_at(exit_index, runtime.exits))
        events = [event for path in runtime.engine.profiles() for event in json.loads(path.read_text(encoding="utf-8"))]
    return [event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")]


def _macs(kernel: dict[str, Any]) -> int:
    count = PRODUCTS.get(kernel["op_name"])
    return 0 if count is None else count(_shapes(kernel["input_type_shape"]), _shapes(kernel["output_type_shape"]))


def _shapes(noted: Sequence[dict[str, list[int]]]) -> Shapes:
    return [shape for each in noted for shape in each.values()]
