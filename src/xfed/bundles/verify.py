"""Proof that a bundle does what it says: the numbers are PyTorch's, and what comes after an exit is really skipped.

Skipping is read off ONNX Runtime's profile of what ran. Without optimisations every convolution and matrix product
is listed with its shapes, so the MACs that ran are counted and must be those of the exit taken, to the last one; a
graph that computes everything and picks an answer afterwards cannot pass, whatever its nodes are called. An operator
that is known neither to multiply matrices nor to be free of that is a failure of its own. With optimisations, as on
a device, no node of a later stage may have run. ExecuTorch keeps no such profile: there a method that is not called is
what skips, and numbers alone are compared.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed.bundles.operators import KNOWN, macs_of
from xfed.bundles.references import REFERENCED, few, reference
from xfed.errors import InputError
from xfed.runs.reader import Run
from xfed_runtime.answers import ANSWERS, Answering, softmax
from xfed_runtime.bundle import Bundle
from xfed_runtime.measuring import measure
from xfed_runtime.policy import Policy
from xfed_runtime.runtime import Runtime
from xfed_runtime.sessions import SessionSettings

TOLERANCES = {"fp32": 1e-5, "fp16": 1e-2, "int8": 0.3}
"""Of logits, relative to the largest where that is above 1. In int8 a mere safeguard: what it costs is accuracy, which
is measured at the export."""


@dataclass(frozen=True)
class ExitCheck:
    """One exit in one format: largest difference from PyTorch, MACs that ran, time."""

    format: str
    exit: int
    difference: float
    macs: int
    executed: int | None
    """Nothing where the runtime does not tell."""
    ms: float


@dataclass(frozen=True)
class Verification:
    """What was found; no problem means that the bundle does what it says."""

    clients: Sequence[int]
    samples: int
    checks: Sequence[ExitCheck]
    problems: Sequence[str]


def verify(bundle: Bundle, run: Run | None = None) -> Verification:
    """Check every format and exit: parity for some clients, skipping for the first of them.

    PyTorch's answers are those that the exporter left in the bundle, or computed anew from the run.
    """
    references = references_in(bundle) if run is None else references_of(bundle, run)
    first = references[0].client
    tolerance = TOLERANCES[bundle.manifest.content["precision"]]
    checks, problems = [], []
    for way in ways(bundle):
        differences = np.max([_differences(way.load(bundle, each.client), each) for each in references], axis=0)
        times = measure(way.load(bundle, first), repetitions=20).exits_ms
        for exit_index, macs in enumerate(bundle.macs):
            executed, problem = None, None
            if way.format != "executorch":
                executed, problem = skipping(bundle, first, way, exit_index)
            checks.append(
                ExitCheck(str(way), exit_index, float(differences[exit_index]), macs, executed, times[exit_index])
            )
            if not differences[exit_index] <= tolerance:
                problem = (
                    f"{way}: exit {exit_index + 1} differs from PyTorch by {differences[exit_index]:.2g}, "
                    f"more than {tolerance:g}"
                )
            problems += [problem] if problem else []
    return Verification(
        [each.client for each in references], sum(len(each.inputs) for each in references), checks, problems
    )


@dataclass(frozen=True)
class Way:
    """A way to load a client's network: by format, alone or sharing graphs with others."""

    format: str
    sharing: bool = False

    def __str__(self) -> str:
        return f"{self.format}, shared" if self.sharing else self.format

    def load(self, bundle: Bundle, client: int, settings: SessionSettings | None = None) -> Runtime:
        """Load a client's network."""
        return bundle.runtime(client, self.format, settings=settings, sharing=self.sharing)


def ways(bundle: Bundle) -> list[Way]:
    """Give all ways in which the bundle's networks can be loaded."""
    shared = "onnx-stages" in bundle.formats and bundle.manifest.together is not None
    return [Way(format) for format in bundle.formats] + [Way("onnx-stages", sharing=True)] * shared


@dataclass(frozen=True)
class Reference:
    """Raw inputs, and what a client's network in PyTorch says to them at every exit."""

    client: int
    inputs: NDArray[Any]
    logits: list[NDArray[np.float32]]

    @classmethod
    def from_json(cls, client: int, noted: Any) -> Reference:
        """Take what an exporter noted."""
        try:
            logits = [np.array(each, dtype=np.float32) for each in noted["logits"]]
            return cls(client, np.array(noted["inputs"]), logits)
        except (KeyError, TypeError, ValueError):
            raise InputError(f"the bundle's reference of client {client} is damaged") from None


def references_in(bundle: Bundle) -> list[Reference]:
    """Read the references that a bundle brings with it."""
    noted = bundle.manifest.content["clients"]
    files = {client: noted[str(client)].get("reference") for client in bundle.clients}
    found = [Reference.from_json(client, bundle.json(name)) for client, name in files.items() if name is not None]
    if not found:
        raise InputError(f"bundle {str(bundle.root)!r} has no references to compare with; give its run with --run")
    return found


def references_of(bundle: Bundle, run: Run) -> list[Reference]:
    """Compute references anew from the run that a bundle was exported from."""
    if bundle.manifest.content["card"]["fingerprint"] != run.environment()["fingerprint"]:
        raise InputError(f"bundle {str(bundle.root)!r} was not exported from run {str(run.path)!r}")
    for client in bundle.clients:
        run.check_model(client)
    return [
        Reference.from_json(client, reference(run.model(client), run.card))
        for client in few(bundle.clients, REFERENCED)
    ]


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


def skipping(bundle: Bundle, client: int, way: Way, exit_index: int) -> tuple[int, str | None]:
    """Count the MACs that ran for one sample leaving at an exit, and tell what is wrong with what ran, if anything."""
    plain, deployed = (_profile(bundle, client, way, exit_index, optimised) for optimised in (False, True))
    executed = sum(macs_of(event["args"]) for event in plain)
    expected = bundle.macs[exit_index]
    where = f"{way}: leaving at exit {exit_index + 1}"
    strange = {event["args"]["op_name"] for event in plain} - KNOWN
    if strange:
        return executed, f"{where} ran {', '.join(sorted(strange))}, whose cost cannot be counted"
    if executed != expected:
        why = ": what comes later is not skipped" if executed > expected else ""
        return executed, f"{where} costs {expected:,} MACs, but ONNX Runtime executed {executed:,}{why}"
    for events in (plain, deployed):
        ran = {int(number) for event in events for number in re.findall(r"^stage(\d+)/", event["name"])}
        if ran != set(range(1, exit_index + 2)):
            return executed, f"{where} ran nodes of stages {sorted(ran)}, not of 1 to {exit_index + 1}"
    return executed, None


def _profile(bundle: Bundle, client: int, way: Way, exit_index: int, optimised: bool) -> list[dict[str, Any]]:
    """Give the kernels that ran for one sample."""
    with tempfile.TemporaryDirectory() as folder:
        settings = SessionSettings(optimised=optimised, profiles=Path(folder))
        runtime = way.load(bundle, client, settings)
        runtime.predict(bundle.inputs.example(), leaving_at(exit_index, runtime.exits))
        events = [event for path in runtime.engine.profiles() for event in json.loads(path.read_text(encoding="utf-8"))]
    return [event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")]
