"""The policies that a bundle carries: a default, and a ladder of them from the first exit to the full network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from xfed.calibration.calibrate import CostLimit, Rule, calibrate
from xfed.calibration.outcomes import outcome
from xfed.calibration.policies import calibrated_policy
from xfed.calibration.reading import NothingToCalibrateError, Traces, read_traces
from xfed.errors import InputError
from xfed.evaluation.traces import ExitTrace
from xfed.runs.reader import Run
from xfed_runtime.answers import ANSWERS, Answer
from xfed_runtime.policy import Policy

BUDGETS = (20, 30, 40, 50, 60, 70, 80, 90)
"""Percent of the full network's MACs."""

USUAL = Policy("confidence", threshold=0.8, note="a usual threshold; nothing was calibrated")

Named = dict[str, dict[str, Any]]
"""Policies by name, each with the mean MACs and the accuracy expected of it, or nothing where that is unknown."""


def policies_of(run: Run, clients: Sequence[int]) -> tuple[Named, dict[int, Named]]:
    """Give everyone's policies, and for each client its own.

    `default` is what `xfed calibrate` left in the run, for the client or for all, else confidence above 0.8. Everyone
    has the exits as they are (`exit-1`, ...), whose costs are certain; with calibration samples each client has its
    ladder.
    """
    traces = _traces(run)
    macs = [float(each) for each in run.exit_macs]
    folder = run.directory.policies
    shared = calibrated_policy(folder) or USUAL
    everyone = {"default": described(shared, None, macs)}
    for answer in ANSWERS:
        everyone |= fixed_exits(macs, answer, None)
    together = None if traces is None else traces.calibration
    by_client = {} if together is None else together.by_client()
    own: dict[int, Named] = {}
    for client in clients:
        default = calibrated_policy(folder, client) or USUAL
        trace = by_client.get(client, together)
        own[client] = {"default": described(default, trace, macs)}
        if trace is not None:
            own[client] |= ladders(trace, macs)
    return everyone, own


def in_precision(named: Named, precision: str) -> Named:
    """Let no note promise for networks in less than float32 what was found with float32."""
    if precision == "fp32":
        return named
    return {name: {**each, "policy": _in_precision(each["policy"], precision)} for name, each in named.items()}


def _in_precision(policy: Mapping[str, Any], precision: str) -> dict[str, Any]:
    note = policy.get("note")
    if not note or note == USUAL.note:
        return dict(policy)
    return {**policy, "note": f"chosen on float32, and not known to hold in {precision}: {note}"}


def anew(named: Named, trace: ExitTrace, macs: Sequence[float]) -> Named:
    """Choose a client's ladder anew on another trace, of the network as it is stored.

    Its default keeps its thresholds, as a run does not keep what they were wished for; what to expect is measured anew.
    """
    if not len(trace) or "default" not in named:
        return named
    default = Policy.from_json(named["default"]["policy"])
    return {"default": described(default, trace, macs), **ladders(trace, macs)}


def ladders(trace: ExitTrace, macs: Sequence[float]) -> Named:
    """Give a ladder of policies for each kind of answers; names tell those of running ones."""
    return {name: each for answer in ANSWERS for name, each in ladder(trace, macs, answer).items()}


def ladder(trace: ExitTrace, macs: Sequence[float], answer: Answer) -> Named:
    """Give policies of rising cost: every exit as it is, and one for each budget between the first and the last.

    So any budget from the first exit's cost up is served, all of the cost buys at least the full network's accuracy,
    and as a larger budget has all the policies of a smaller one, it is never expected to be less accurate.
    """
    named = fixed_exits(macs, answer, trace)
    for percent in BUDGETS:
        most = percent / 100 * macs[-1]
        with suppress(InputError):  # below the first exit's cost, or samples whose signals are NaN never leave
            policy = calibrate(trace, macs, CostLimit(most), Rule(answer=answer), "shared")
            named[_name(f"budget-{percent}%", answer)] = described(policy, trace, macs)
    return named


def fixed_exits(macs: Sequence[float], answer: Answer, trace: ExitTrace | None) -> Named:
    """Give for each exit the policy that always leaves there; its cost is certain."""
    policies = [Policy("fixed", exit=number, answer=answer) for number in range(1, len(macs) + 1)]
    exits = {_name(f"exit-{policy.exit}", answer): policy for policy in policies}
    found = {name: described(policy, trace, macs) for name, policy in exits.items()}
    return {name: each | {"macs": cost} for (name, each), cost in zip(found.items(), macs, strict=True)}


def described(policy: Policy, trace: ExitTrace | None, macs: Sequence[float]) -> dict[str, Any]:
    """Note what to expect of a policy, on calibration samples; every client in them counts the same."""
    expected: Mapping[str, float | None] = {"macs": None, "accuracy": None}
    if trace is not None and policy.kind != "anytime":
        each = [outcome(policy, own, macs) for own in trace.by_client().values()]
        expected = {
            "macs": sum(one.cost for one in each) / len(each),
            "accuracy": sum(one.accuracy for one in each) / len(each),
        }
    return {"policy": policy.to_json(), **expected}


def _name(name: str, answer: Answer) -> str:
    return name if answer == "own" else f"{name}-{answer}"


def _traces(run: Run) -> Traces | None:
    try:
        return read_traces(run)
    except NothingToCalibrateError:
        return None
