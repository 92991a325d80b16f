"""The policies that a bundle carries: a default, and one for each of a ladder of budgets where a run can calibrate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xfed.calibration.calibrate import CostLimit, Rule
from xfed.calibration.outcomes import outcome
from xfed.calibration.policies import SHARED, choose
from xfed.calibration.reading import Traces, read_traces
from xfed.errors import InputError
from xfed.runs.reader import Run
from xfed_runtime.policy import Policy

BUDGETS = (20, 30, 40, 50, 60, 70, 80, 90)
"""Percent of the full network's MACs."""

USUAL = Policy("confidence", threshold=0.8, note="a usual threshold; nothing was calibrated")

Named = dict[str, dict[str, Any]]
"""Policies by name, each with the mean MACs and the accuracy expected of it, or nothing where that is unknown."""


def policies_of(run: Run, clients: Sequence[int]) -> tuple[Named, dict[int, Named]]:
    """Give everyone's policies, and for each client its own.

    `default` is what `xfed calibrate` left in the run, for the client or for all, else confidence above 0.8;
    `budget-60%` is calibrated for the client, on its own calibration samples.
    """
    traces = _traces(run)
    folder = run.path / "policies"
    shared = _calibrated(folder / SHARED)
    everyone = {"default": _described(shared or USUAL, None, None)}
    own: dict[int, Named] = {client: {} for client in clients}
    for client in clients:
        default = _calibrated(folder / f"client-{client:06d}.json") or shared or USUAL
        own[client]["default"] = _described(default, traces, client)
    if traces is not None:
        for percent in BUDGETS:
            for client, policy in _for_budget(traces, percent).items():
                if client in own:
                    own[client][f"budget-{percent}%"] = _described(policy, traces, client)
    return everyone, own


def _traces(run: Run) -> Traces | None:
    try:
        return read_traces(run)
    except InputError:  # nothing to calibrate, or nothing to calibrate with
        return None


def _calibrated(path: Path) -> Policy | None:
    return Policy.read(path) if path.is_file() else None


def _for_budget(traces: Traces, percent: int) -> dict[int, Policy]:
    limit = CostLimit(percent / 100 * traces.macs[-1])
    if limit.most < traces.macs[0]:
        return {}
    chosen = choose(traces, traces.macs, "MACs", limit, Rule(), "shared", per_client=True)
    return {each.client: each.policy for each in chosen.clients}


def _described(policy: Policy, traces: Traces | None, client: int | None) -> dict[str, Any]:
    """Note what to expect of a policy, on the client's calibration samples."""
    expected = None
    if traces is not None and client is not None and policy.kind != "anytime":
        trace = traces.calibration.of_client(client)
        expected = outcome(policy, trace, traces.macs) if len(trace) else None
    return {
        "policy": policy.to_json(),
        "macs": None if expected is None else expected.cost,
        "accuracy": None if expected is None else expected.accuracy,
    }
