"""When to leave: a policy looks at an exit's answer and says which samples stop there.

A policy is a small JSON file, such as {"kind": "confidence", "threshold": 0.8} or
{"kind": "entropy", "threshold": [0.3, 0.5, 0.9], "enabled": [true, false, true, true], "answer": "running"}.
Exits are counted from 0 in code and from 1 in the file. The last exit always answers, also if it is not enabled.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from xfed_runtime.answers import ANSWERS, Answer, AnySignals, Rows, Signals
from xfed_runtime.device import QUANTILES, Latencies
from xfed_runtime.documents import Document

Kind = Literal["confidence", "entropy", "margin", "patience", "fixed", "anytime"]
Signal = Literal["confidence", "entropy", "margin"]
SIGNALS: tuple[Signal, ...] = get_args(Signal)

_NEEDS: dict[str, str] = dict.fromkeys(SIGNALS, "threshold") | {
    "patience": "patience",
    "fixed": "exit",
    "anytime": "deadline_ms",
}


class PolicyError(ValueError):
    """A policy that cannot be used, told in one sentence."""


@dataclass(frozen=True)
class Policy(Document):
    """When to leave, by kind; each kind needs exactly one number of its own.

    - `confidence`, `margin`: leave where the signal > `threshold`; `entropy` (nats): where it < `threshold`. All
      strict: a confidence of 1 is not > 1, so threshold 1 is the full model; every confidence > 0, so 0 is exit 1.
      One threshold for all exits, or one for each exit but the last.
    - `patience` (PABEE): a sample's count is 0 at exit 1, grows by one at each exit that predicts the same class as
      the exit before it, and falls back to 0 otherwise; leave where the count has reached `patience`. So p + 1
      exits in a row agree, and patience p leaves at exit p + 1 at the earliest.
    - `fixed`: leave at `exit`, counted from 1.
    - `anytime`: leave where the next enabled exit is expected to come after `deadline_ms`, by a table of latencies.
      The first enabled exit answers even when it is late already. With `quantile`, such a share of answers shall
      keep the deadline; half of them otherwise.

    `enabled` says for each exit whether samples may leave there; an exit that is not enabled is evaluated and
    passed (patience and running answers count it). `answer` is what an exit answers, see `answers`.
    `note` is for people.
    """

    called: ClassVar[str] = "policy file"
    refused: ClassVar[type[ValueError]] = PolicyError

    kind: Kind
    threshold: float | tuple[float, ...] | None = None
    patience: int | None = None
    exit: int | None = None
    deadline_ms: float | None = None
    quantile: float | None = None
    enabled: tuple[bool, ...] | None = None
    answer: Answer = "own"
    note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in _NEEDS:
            raise PolicyError(f"policy kind is {self.kind!r}; allowed: {', '.join(_NEEDS)}")
        for name in dict.fromkeys(_NEEDS.values()):
            given, needed = getattr(self, name) is not None, _NEEDS[self.kind] == name
            if needed and not given:
                raise PolicyError(f"a policy of kind {self.kind!r} needs {name!r}")
            if given and not needed:
                raise PolicyError(f"a policy of kind {self.kind!r} takes {_NEEDS[self.kind]!r}, not {name!r}")
        if self.kind in SIGNALS:
            self._check_thresholds()
        if self.patience is not None and not _is_whole(self.patience, 1):
            raise PolicyError(f"policy patience is {self.patience!r}; allowed: whole numbers from 1")
        if self.exit is not None and not _is_whole(self.exit, 1):
            raise PolicyError(f"policy exit is {self.exit!r}; allowed: whole numbers from 1")
        if self.deadline_ms is not None and not (_is_number(self.deadline_ms) and self.deadline_ms > 0):
            raise PolicyError(f"policy deadline_ms is {self.deadline_ms!r}; allowed: numbers above 0")
        if self.quantile is not None and not (self.kind == "anytime" and self.quantile in QUANTILES):
            allowed = ", ".join(map(str, QUANTILES))
            raise PolicyError(f"policy quantile is {self.quantile!r}; allowed, with kind 'anytime': {allowed}")
        if self.enabled is not None and not (
            isinstance(self.enabled, tuple) and self.enabled and all(isinstance(flag, bool) for flag in self.enabled)
        ):
            raise PolicyError(f"policy enabled is {self.enabled!r}; allowed: true or false for each exit")
        if self.answer not in ANSWERS:
            raise PolicyError(f"policy answer is {self.answer!r}; allowed: {', '.join(ANSWERS)}")
        if not isinstance(self.note, str):
            raise PolicyError(f"policy note is {self.note!r}; allowed: text")

    def _check_thresholds(self) -> None:
        values = self.threshold if isinstance(self.threshold, tuple) else (self.threshold,)
        highest, allowed = (math.inf, "numbers from 0") if self.kind == "entropy" else (1.0, "numbers from 0 to 1")
        for value in values:
            if value is None or not (_is_number(value) and 0 <= value <= highest):
                raise PolicyError(f"policy threshold is {value!r}; allowed for {self.kind}: {allowed}")

    def start(self, exits: int, latencies: Latencies | None = None) -> Decider:
        """Begin a batch on a network with so many exits; `latencies` are for `anytime`."""
        return Decider(self, exits, latencies)

    def thresholds(self, exits: int) -> NDArray[np.float64]:
        """Give the threshold of each exit but the last; one that is not enabled has an infinite one, never met."""
        if self.kind not in SIGNALS:
            raise PolicyError(f"a policy of kind {self.kind!r} has no thresholds; allowed: {', '.join(SIGNALS)}")
        single = not isinstance(self.threshold, tuple)
        values = np.full(exits - 1, self.threshold) if single else np.array(self.threshold, dtype=np.float64)
        if len(values) != exits - 1:
            raise PolicyError(
                f"the policy has {len(values)} thresholds, but the network {exits} exits; "
                f"allowed: one for all, or {exits - 1} (the last exit needs none)"
            )
        never = -np.inf if self.kind == "entropy" else np.inf
        return np.where(self.may_leave(exits)[:-1], values, never)

    def may_leave(self, exits: int) -> NDArray[np.bool_]:
        """Tell for each exit whether samples may leave there."""
        enabled = np.ones(exits, dtype=np.bool_) if self.enabled is None else np.array(self.enabled)
        if len(enabled) != exits:
            raise PolicyError(f"the policy enables or not {len(enabled)} exits, but the network has {exits}")
        enabled[-1] = True
        return enabled

    @classmethod
    def check(cls, value: Any) -> None:
        """Refuse what is no policy, or has anything unknown."""
        if not isinstance(value, Mapping):
            raise PolicyError(f"a policy is a JSON object, not {type(value).__name__}")
        allowed = [field.name for field in fields(cls)]
        for name in value:
            if name not in allowed:
                raise PolicyError(f"a policy has no {name!r}; allowed: {', '.join(allowed)}")
        if "kind" not in value:
            raise PolicyError(f"a policy needs 'kind'; allowed: {', '.join(_NEEDS)}")


class Decider:
    """A policy at work on one batch, exit after exit."""

    def __init__(self, policy: Policy, exits: int, latencies: Latencies | None = None) -> None:
        if policy.exit is not None and policy.exit > exits:
            raise PolicyError(f"the policy leaves at exit {policy.exit}, but the network has {exits}")
        if policy.kind == "anytime" and latencies is None:
            raise PolicyError("a policy with a deadline needs a table of latencies by exit; measure the device")
        if latencies is not None and len(latencies.usual) != exits:
            raise PolicyError(f"the table has latencies for {len(latencies.usual)} exits, but the network has {exits}")
        self.policy, self.exits = policy, exits
        self._enabled = policy.may_leave(exits)
        self._thresholds = policy.thresholds(exits) if policy.kind in SIGNALS else None
        self._latencies = latencies or Latencies((), ())
        self._before: NDArray[np.int64] | None = None
        self._count = np.zeros(0, dtype=np.int64)

    def leaves(self, exit_index: int, signals: AnySignals, elapsed_ms: float | None = None) -> NDArray[np.bool_]:
        """Tell which samples leave at this exit; exits are asked in order.

        `elapsed_ms` is the time since the batch began, for `anytime`; without it, what the table says.
        """
        n = len(signals)
        if exit_index == self.exits - 1:
            return np.ones(n, dtype=np.bool_)
        left: NDArray[np.bool_]
        if self._thresholds is not None:
            left = self._sure(signals, self._thresholds[exit_index])
        elif self.policy.patience is not None:
            left = self._agreements(signals.prediction) >= self.policy.patience
        elif self.policy.deadline_ms is not None:
            left = np.full(n, self._next_ms(exit_index, elapsed_ms) > self.policy.deadline_ms)
        else:
            left = np.full(n, self.policy.exit == exit_index + 1)
        return left if self._enabled[exit_index] else np.zeros_like(left)

    def _sure(self, signals: AnySignals, threshold: float) -> NDArray[np.bool_]:
        """Compare in float64, where a float32 signal and a threshold between two of them are both exact."""
        values: NDArray[np.float64] = getattr(signals, self.policy.kind).astype(np.float64)
        sure: NDArray[np.bool_] = values < threshold if self.policy.kind == "entropy" else values > threshold
        return sure

    def _agreements(self, prediction: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._before is None:
            self._count = np.zeros(len(prediction), dtype=np.int64)
        else:
            self._count = np.where(prediction == self._before, self._count + 1, 0)
        self._before = prediction
        return self._count

    def _next_ms(self, exit_index: int, elapsed_ms: float | None) -> float:
        """Expect when the next enabled exit would answer, if it is slow; the way so far is taken for a usual one."""
        following = exit_index + 1 + int(self._enabled[exit_index + 1 :].argmax())
        usual = self._latencies.usual[exit_index]
        elapsed = usual if elapsed_ms is None else elapsed_ms
        return elapsed + self._latencies.slow[following] - usual

    def keep(self, rows: Rows) -> None:
        """Go on with these samples of the batch only."""
        if self._before is not None:
            self._before, self._count = self._before[rows], self._count[rows]


def simulate(policy: Policy, signals: Signals, latencies: Latencies | None = None) -> NDArray[np.int64]:
    """Give the exit (from 0) that each sample of a trace (n × m) takes: what running the policy would do."""
    exits = signals.prediction.shape[1]
    decider = policy.start(exits, latencies)
    left = np.stack([decider.leaves(j, signals[:, j]) for j in range(exits)], axis=1)
    taken: NDArray[np.int64] = left.argmax(axis=1)
    return taken


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
