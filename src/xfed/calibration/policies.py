"""Policies for a run: for each client its own, or one for all, with what to expect of them and what they come to."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xfed.calibration.calibrate import Deadline, Rule, Search, Wish, calibrate
from xfed.calibration.outcomes import Outcome, averaged, outcome
from xfed.calibration.reading import Traces
from xfed.calibration.risk import Certified, RiskLimit, certify, certify_shared
from xfed.evaluation.traces import ExitTrace
from xfed.files import whole_folder, write_json, write_text
from xfed.runs.directory import TraceOf
from xfed_runtime.policy import Policy

SHARED, TABLE = "shared.json", "calibration.csv"
POLICY_FILES = ("client-*.json", SHARED, TABLE)


@dataclass(frozen=True)
class ClientPolicy:
    """A client's policy: `expected` on its calibration samples, `reported` on its test samples, where it has any."""

    client: int
    policy: Policy
    basis: str
    expected: Outcome | None
    reported: Outcome | None

    @property
    def weight(self) -> int:
        """Number of calibration samples: what a pooled guarantee weighs the client by."""
        return 0 if self.expected is None else self.expected.samples


@dataclass(frozen=True, repr=False)
class Calibration:
    """What was wished for, and the policies that meet it."""

    wish: Wish | RiskLimit | Deadline
    costs: tuple[float, ...]
    unit: str
    per_client: bool
    clients: tuple[ClientPolicy, ...]

    def __repr__(self) -> str:
        said = [f"{len(self.clients)} clients"]
        for kind, where in (("expected", "calibration"), ("reported", "test")):
            known = [found for each in self.clients if (found := getattr(each, kind)) is not None]
            if known:
                mean = averaged(known)
                said.append(
                    f"on {where} samples {mean.accuracy:.1%} at {mean.cost:,.6g} {self.unit}, "
                    f"in full {mean.full_accuracy:.1%}"
                )
        return f"Calibration({self.wish}: {'; '.join(said)})"

    def write(self, folder: Path) -> None:
        """Write the policies, in place of any that are there, and a table of all clients: together, or not at all.

        `client-000003.json` is client 3's, `shared.json` everyone's.
        """
        with whole_folder(folder, POLICY_FILES) as fresh:
            if self.per_client:
                for each in self.clients:
                    write_json(fresh / f"client-{each.client:06d}.json", each.policy.to_json())
            else:
                write_json(fresh / SHARED, self.clients[0].policy.to_json())
            write_text(fresh / TABLE, self._comma_separated())

    def _comma_separated(self) -> str:
        names = ("samples", "stands_for", "accuracy", "full_accuracy", "disagreement", "cost")
        exits = [f"exit_{j + 1}" for j in range(len(self.costs))]
        kinds = ("expected", "reported")
        header = ["client", "basis", "threshold", *(f"{kind}_{name}" for kind in kinds for name in (*names, *exits))]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        for each in self.clients:
            row = [each.client, each.basis, each.policy.threshold]
            for found in (each.expected, each.reported):
                values = [""] * len(names) if found is None else [getattr(found, name) for name in names]
                row += [*values, *([""] * len(exits) if found is None else found.shares)]
            writer.writerow(row)
        return text.getvalue()


def calibrated_policy(folder: Path, client: int | None = None) -> Policy | None:
    """Read what `Calibration.write` left for a client, or for all; nothing where nothing was calibrated."""
    own = None if client is None else folder / f"client-{client:06d}.json"
    for path in (own, folder / SHARED):
        if path is not None and path.is_file():
            return Policy.read(path)
    return None


def choose(
    traces: Traces,
    costs: Sequence[float],
    unit: str,
    wish: Wish | RiskLimit | Deadline,
    rule: Rule,
    search: Search,
    per_client: bool,
) -> Calibration:
    """Choose policies on the calibration trace, and only then look at the test trace."""
    chosen: dict[int, tuple[Policy, str]]
    latencies = None
    if isinstance(wish, Deadline):
        chosen = dict.fromkeys(traces.clients, (wish.policy(rule.answer), "the device"))
        per_client, latencies = False, wish.latencies
    elif isinstance(wish, RiskLimit):
        certified = _certified(traces, wish, rule, per_client)
        chosen = {client: (each.policy, each.guarantee) for client, each in certified.items()}
    else:
        chosen = _calibrated(traces, costs, wish, rule, search, per_client)
    by_client: dict[TraceOf, dict[int, ExitTrace]] = {
        "calibration": traces.calibration.by_client(),
        "test": {} if traces.test is None else traces.test.by_client(),
    }

    def come_to(policy: Policy, of: TraceOf, client: int) -> Outcome | None:
        if client not in by_client[of]:
            return None
        found = outcome(policy, by_client[of][client], costs, latencies)
        return replace(found, stands_for=traces.weights.get(of, {}).get(client, 1.0))

    clients = tuple(
        ClientPolicy(client, policy, basis, come_to(policy, "calibration", client), come_to(policy, "test", client))
        for client, (policy, basis) in chosen.items()
    )
    return Calibration(wish, tuple(costs), unit, per_client, clients)


def _certified(traces: Traces, limit: RiskLimit, rule: Rule, per_client: bool) -> dict[int, Certified]:
    if per_client:
        return certify(traces.calibration, traces.clients, limit, rule)
    shared = certify_shared(traces.calibration, limit, rule)
    contributed = set(traces.calibration.clients)
    return {c: shared if c in contributed else replace(shared, guarantee="none") for c in traces.clients}


def _calibrated(
    traces: Traces, costs: Sequence[float], wish: Wish, rule: Rule, search: Search, per_client: bool
) -> dict[int, tuple[Policy, str]]:
    """Calibrate; a client without calibration samples gets the policy of all together, and its note says so."""
    own = traces.calibration.by_client() if per_client else {}
    pooled: Policy | None = None
    chosen = {}
    for client in traces.clients:
        if client in own:
            chosen[client] = calibrate(own[client], costs, wish, rule, search), "per client"
        else:
            weights = traces.weights.get("calibration")
            pooled = pooled or calibrate(traces.calibration, costs, wish, rule, search, weights)
            note = f"{pooled.note}, as client {client} has none" if per_client else pooled.note
            chosen[client] = replace(pooled, note=note), "pooled"
    return chosen
