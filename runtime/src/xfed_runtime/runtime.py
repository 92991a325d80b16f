"""A client's network ready to answer: raw inputs in, and out come class, exit, cost and time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed_runtime.answers import Answer
from xfed_runtime.device import Device, DeviceError, Latencies
from xfed_runtime.inputs import Inputs, InputsError
from xfed_runtime.manifest import BundleError
from xfed_runtime.policy import Policy
from xfed_runtime.sessions import Engine
from xfed_runtime.walking import Answers

LARGEST_BATCH = 256
SLACK = 1e-9
"""Of a budget: a share of the full network's cost, such as 100 %, is subject to rounding."""


@dataclass(frozen=True)
class Expectation:
    """A policy, and what it came to on calibration samples (mean MACs and accuracy), where that is known."""

    policy: Policy
    macs: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Predictions:
    """Answers in the order of the inputs. Exits are counted from 0; `ms` is the time until the sample's answer."""

    labels: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    exits: NDArray[np.int64]
    macs: NDArray[np.int64]
    ms: NDArray[np.float64]
    logits: NDArray[np.float32]
    """The own logits of the exit taken."""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Runtime:
    """One client's network in one format."""

    client: int
    format: str
    engine: Engine
    inputs: Inputs
    classes: tuple[str, ...]
    macs: tuple[int, ...]
    policies: Mapping[str, Expectation]
    device: Device | None = None

    @property
    def exits(self) -> int:
        """Number of exits."""
        return self.engine.exits

    def predict(
        self,
        inputs: Any,
        policy: Policy | str | None = None,
        budget: float | str | None = None,
        deadline_ms: float | None = None,
        quantile: float | None = None,
        answer: Answer | None = None,
    ) -> Predictions:
        """Answer a batch of raw inputs: images (numbers, n × C × H × W) or a list of texts.

        Give one of: a policy or the name of one in the bundle; a budget of mean MACs, such as 3.5e8 or "60%" of the
        full network's; a deadline for each sample, which such a share of answers (`quantile`) shall keep, half of them
        unless given. With none of them, the policy named `default` decides. `answer` says what exits answer, their own
        softmax or the running mean; as the policy, or the default one, says unless given. A named policy then gives
        way to the one of the bundle that was calibrated for such answers, where there is one.
        """
        chosen = self.choose(policy, budget, deadline_ms, quantile, answer)
        count = _count(inputs)
        together = 1 if chosen.kind == "anytime" else self.engine.together or LARGEST_BATCH
        latencies = self._latencies(chosen)
        answers: list[Answers] = []
        for first in range(0, count, together) or [0]:
            started = time.perf_counter()
            prepared = self.inputs.prepare(inputs if count <= together else inputs[first : first + together])
            if len(prepared):
                answers.append(self.engine.run(prepared, chosen, latencies, started))
        return self._predictions(answers)

    def _latencies(self, policy: Policy) -> Latencies | None:
        if self.device is None:
            return None
        try:
            return self.device.by_quantile(policy.quantile)
        except DeviceError as error:
            raise InputsError(str(error)) from None

    def _predictions(self, answers: Sequence[Answers]) -> Predictions:
        if len(answers) == 1:
            (a,) = answers
        else:
            nothing = np.empty((0, len(self.classes)), dtype=np.float32)
            parts = (Answers(nothing, nothing, np.empty(0, dtype=np.int64), np.empty(0)), *answers)
            a = Answers(*(np.concatenate([getattr(each, f.name) for each in parts]) for f in fields(Answers)))
        if not np.isfinite(a.probabilities).all():
            raise BundleError(f"the network of client {self.client} answers with numbers that are not finite")
        macs = np.array(self.macs, dtype=np.int64)[a.exits]
        return Predictions(a.probabilities.argmax(axis=1), a.probabilities, a.exits, macs, a.ms, a.logits)

    def choose(
        self,
        policy: Policy | str | None = None,
        budget: float | str | None = None,
        deadline_ms: float | None = None,
        quantile: float | None = None,
        answer: Answer | None = None,
    ) -> Policy:
        """Find the policy that a wish comes down to."""
        usual = self.policies["default"].policy.answer
        if sum(wish is not None for wish in (policy, budget, deadline_ms)) > 1:
            raise InputsError("give one of policy, budget and deadline_ms, not several")
        if budget is not None:
            return self._within(budget, answer or usual)
        if deadline_ms is not None:
            if self.device is None:
                raise InputsError(
                    "a deadline needs this device's latencies; measure it with 'xfed device-bench' or "
                    "xfed_runtime.measure, and give the table as device"
                )
            return Policy("anytime", deadline_ms=deadline_ms, quantile=quantile, answer=answer or usual)
        if quantile is not None:
            raise InputsError("quantile goes with deadline_ms")
        if isinstance(policy, Policy):
            return policy if answer is None else _answering(policy, answer)
        return self._named("default" if policy is None else policy, answer)

    def _named(self, name: str, answer: Answer | None) -> Policy:
        """Take a policy of the bundle; for other answers its twin, as `budget-60%-running` is of `budget-60%`."""
        if name not in self.policies:
            raise InputsError(f"the bundle has no policy {name!r}; it has: {', '.join(self.policies)}")
        policy = self.policies[name].policy
        if answer is None or answer == policy.answer:
            return policy
        plain = name.removesuffix("-running")
        twin = self.policies.get(plain if answer == "own" else f"{plain}-{answer}")
        return _answering(policy if twin is None else twin.policy, answer)

    def _within(self, budget: float | str, answer: Answer) -> Policy:
        """Take the most accurate policy whose expected cost is within the budget, of equal ones the cheapest.

        Where accuracies are unknown, the dearest: a later exit is the better guess.
        """
        most = self._macs_of(budget)
        kind = {name: p for name, p in self.policies.items() if p.policy.answer == answer}
        known = {name: p for name, p in kind.items() if p.macs is not None}
        if not known:
            raise InputsError(
                f"the bundle has no policy of {answer} answers with a known cost; calibration samples at training "
                "(--calibration 0.2) give it some, or name a policy"
            )
        fitting = {name: p for name, p in known.items() if p.macs is not None and p.macs <= most * (1 + SLACK)}
        if not fitting:
            least = min(p.macs for p in known.values() if p.macs is not None)
            raise InputsError(
                f"no policy of the bundle keeps to {most:,.6g} MACs ({most / self.macs[-1]:.1%}); the cheapest is "
                f"expected to need {least:,.6g} ({least / self.macs[-1]:.1%})"
            )
        return self.policies[max(fitting, key=lambda name: _merit(fitting[name]))].policy

    def _macs_of(self, budget: float | str) -> float:
        text = str(budget).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = -1.0
        if not 0 < number < np.inf or isinstance(budget, bool):
            raise InputsError(f"budget is {budget!r}; allowed: mean MACs such as 3.5e8, or a share such as 60%")
        return number / 100 * self.macs[-1] if text.endswith("%") else number


def _count(inputs: Any) -> int:
    """Count inputs; what has no length, such as an array without dimensions, is left to those who refuse it."""
    try:
        return len(inputs)
    except TypeError:
        return 1


def _answering(policy: Policy, answer: Answer) -> Policy:
    """Let a policy answer otherwise; what its note promises was found with the answers that it had."""
    if answer == policy.answer:
        return policy
    note = policy.note and f"chosen for {policy.answer} answers, and not known to hold for {answer} ones: {policy.note}"
    return replace(policy, answer=answer, note=note)


def _merit(expected: Expectation) -> tuple[float, float]:
    assert expected.macs is not None
    return (-1.0, expected.macs) if expected.accuracy is None else (expected.accuracy, -expected.macs)
