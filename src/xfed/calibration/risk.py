"""Risk control: early answers that are guaranteed to err rarely (Learn then Test, Angelopoulos et al., 2021).

Thresholds are tested from the safest down, each against the hypothesis that its risk exceeds r, by the exact binomial
tail P(Bin(n, r) ≤ losses) ≤ δ. Testing ends at the first that cannot be rejected, and the last rejected one is
taken: then P(risk > r) ≤ δ over the draw of the calibration samples. The order is fixed in advance, and as losses
change only at observed values, testing between all of them tests every threshold there is.

Clients too small to certify anything share a policy, certified on their samples together. What that guarantees is
their mean loss, weighted by their numbers of calibration samples, not each client's: a sum of losses of unequal
clients falls below a limit less often than a binomial one with the same mean (Hoeffding, 1956). It holds because
exactly those who contribute use it, and who they are is settled by numbers of samples, before any loss is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Literal, get_args

import numpy as np

from xfed.calibration.calibrate import Rule
from xfed.calibration.thresholds import Numbers, shared_curve
from xfed.errors import InputError, unknown
from xfed.evaluation.traces import ExitTrace
from xfed_runtime.policy import Policy

Loss = Literal["disagreement", "error"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
Guarantee = Literal["per client", "pooled", "none"]
DELTA = 0.1
"""How often a guarantee may fail, where nothing is said."""


@dataclass(frozen=True)
class RiskLimit:
    """Loss rate at most `risk` with probability at least 1 − `delta`.

    Loss `disagreement`: the early answer differs from the full model's (needs no labels); `error`: it is wrong.
    """

    risk: float
    delta: float = DELTA
    loss: Loss = "disagreement"

    def __post_init__(self) -> None:
        for name, value in (("risk", self.risk), ("delta", self.delta)):
            if not (isinstance(value, Real) and 0 < value < 1):
                raise InputError(f"{name} is {value!r}; allowed: numbers between 0 and 1")
        if self.loss not in LOSSES:
            raise unknown("loss", self.loss, LOSSES)

    @property
    def samples(self) -> int:
        """Smallest number of samples that can certify anything: (1 − r)^n ≤ δ."""
        return math.ceil(math.log(self.delta) / math.log1p(-self.risk))

    def __str__(self) -> str:
        return f"{self.loss} at most {self.risk:.2%} with confidence {1 - self.delta:.0%}"


@dataclass(frozen=True)
class Certified:
    """A policy and what is guaranteed of it."""

    policy: Policy
    guarantee: Guarantee


def most_losses(samples: int, risk: float, delta: float) -> int:
    """Give the largest number of losses k with P(Bin(samples, risk) ≤ k) ≤ delta; −1 where not even 0 is.

    Summed in logarithms, term by term, so that it neither underflows nor approximates.
    """
    limit = math.log(delta)
    term = samples * math.log1p(-risk)
    total, k = term, -1
    odds = math.log(risk) - math.log1p(-risk)
    while total <= limit:
        k += 1
        term += math.log(samples - k) - math.log(k + 1) + odds
        total = float(np.logaddexp(total, term))
    return k


def certified_threshold(trace: ExitTrace, limit: RiskLimit, rule: Rule) -> float | None:
    """Give the last rejected threshold on scores (see `Rule`); nothing where not even the full model is certified."""
    evidence = rule.evidence(trace, range(trace.exits))
    counted = replace(evidence, weights=np.ones(len(trace)))
    curve = shared_curve(counted, losses(trace, limit.loss, rule))
    rejected = np.rint(curve.accuracy) <= most_losses(len(trace), limit.risk, limit.delta)
    from_the_safest = np.append(rejected[::-1], False)
    passed = int(from_the_safest.argmin())
    return curve.threshold(len(rejected) - passed) if passed else None


def losses(trace: ExitTrace, loss: Loss, rule: Rule) -> Numbers:
    """Give 1 for each sample and exit whose answer is a loss, 0 elsewhere (n × m)."""
    prediction = trace.signals(rule.answer).prediction
    truth = trace.labels if loss == "error" else prediction[:, -1]
    lost: Numbers = (prediction != truth[:, None]).astype(np.float64)
    return lost


def certify_shared(trace: ExitTrace, limit: RiskLimit, rule: Rule) -> Certified:
    """Certify one policy on the samples of some clients together: a guarantee for their mixture, not for each."""
    threshold = certified_threshold(trace, limit, rule)
    if threshold is None:
        raise InputError(
            f"{limit} cannot be certified with {len(trace)} calibration samples of {len(trace.clients)} clients "
            f"together: {_why_not(trace, limit, rule)}"
        )
    whose = f"{len(trace)} samples of {len(trace.clients)} clients together"
    return _certified(
        trace, threshold, rule, "pooled", f"{limit}, for the mean over these samples, not per client: from {whose}"
    )


def certify(trace: ExitTrace, clients: Sequence[int], limit: RiskLimit, rule: Rule) -> dict[int, Certified]:
    """Certify a policy for each client.

    Clients with too few samples to certify anything share a policy, certified on the samples of exactly these
    clients. A client without samples, or whose samples certify nothing, keeps the full model without a guarantee;
    so do all that share where not even their samples together certify anything.
    """
    traces = trace.by_client()
    sizes = {client: len(traces[client]) if client in traces else 0 for client in clients}
    few = [client for client in clients if 0 < sizes[client] < limit.samples]
    pooled: Certified | str = "nobody shares"
    if few:
        together = ExitTrace.concatenate([traces[client] for client in few])
        try:
            pooled = certify_shared(together, limit, rule)
        except InputError as error:
            pooled = str(error)
    found = {}
    for client in clients:
        if sizes[client] == 0:
            found[client] = full_model(trace, rule, f"client {client} has no calibration samples")
        elif sizes[client] >= limit.samples:
            found[client] = _certified_alone(client, traces[client], limit, rule)
        elif isinstance(pooled, str):
            found[client] = full_model(trace, rule, pooled)
        else:
            note = f"{pooled.policy.note}, as client {client} has {sizes[client]} and {limit.samples} are needed"
            found[client] = replace(pooled, policy=replace(pooled.policy, note=note))
    if all(each.guarantee == "none" for each in found.values()):
        raise InputError(f"{limit} cannot be certified for any client: {_why_not(trace, limit, rule)}")
    return found


def full_model(trace: ExitTrace, rule: Rule, why: str) -> Certified:
    """Give the full model, without a guarantee."""
    return _certified(trace, np.inf, rule, "none", f"full model: {why}")


def _certified_alone(client: int, own: ExitTrace, limit: RiskLimit, rule: Rule) -> Certified:
    threshold = certified_threshold(own, limit, rule)
    if threshold is None:
        return full_model(own, rule, f"{limit} cannot be certified, {_why_not(own, limit, rule)}")
    note = f"{limit}, guaranteed for client {client} by its {len(own)} calibration samples"
    return _certified(own, threshold, rule, "per client", note)


def _certified(trace: ExitTrace, threshold: float, rule: Rule, guarantee: Guarantee, note: str) -> Certified:
    return Certified(rule.policy(np.full(trace.exits - 1, threshold), note), guarantee)


def _why_not(trace: ExitTrace, limit: RiskLimit, rule: Rule) -> str:
    if len(trace) < limit.samples:
        return f"at least {limit.samples} are needed"
    return f"the full model's own loss on them is {losses(trace, limit.loss, rule)[:, -1].mean():.2%}"
