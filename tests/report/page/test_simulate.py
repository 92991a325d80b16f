"""The page's simulation in Node, without a browser: the same figures as the runtime's policies and the run's tables."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.conftest import SAMPLED
from xfed import Run
from xfed.calibration.outcomes import outcome
from xfed.report.page.build import HOME, page
from xfed.report.page.content import GRID
from xfed_runtime.policy import Policy

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")

THRESHOLD = 0.3
ASKED = """
openBlock().then((block) => {
  const { traces, costs } = unpack(DATA.runs, block)[0], at = GRID.indexOf(THRESHOLD);
  const live = simulate(traces.test, costs.MACs, () => new Array(costs.MACs.length - 1).fill(at));
  const { accuracy, cost } = curve(traces.test, costs.MACs);
  console.log(JSON.stringify({
    live: [live.meanAccuracy, live.meanCost, ...live.shares], curve: [accuracy[at], cost[at]], full: accuracy.at(-1),
  }));
});
"""


def simulated(run: Run) -> Any:
    """What the page's scripts say of its first run, at one threshold."""
    text = page([run])
    parts = {name: re.search(rf'id="{name}">(.*?)</script>', text, re.DOTALL)[1] for name in ("data", "block")}  # type: ignore[index]
    held = f"const held = {json.dumps(parts)}, document = {{ getElementById: (id) => ({{ textContent: held[id] }}) }};"
    scripts = [(HOME / name).read_text() for name in ("data.js", "simulate.js")]
    script = "\n".join([held, *scripts, f"const THRESHOLD = {THRESHOLD};", ASKED])
    assert NODE is not None
    return json.loads(subprocess.run([NODE, "-"], input=script, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("answers", ["own", "running"])
def test_the_answers_that_count_in_the_run_are_simulated(train: Callable[..., Run], answers: str) -> None:
    run = train(alpha=0.3, epochs=3, answers=answers)
    assert THRESHOLD in GRID
    found = simulated(run)
    trace = run.trace("test")
    assert trace is not None
    policy = Policy("confidence", threshold=THRESHOLD, answer=run.experiment.answering())
    each = [outcome(policy, own, run.exit_macs) for own in trace.by_client().values()]
    wanted = np.mean([[one.accuracy, one.cost, *one.shares] for one in each], axis=0)
    assert found["live"] == pytest.approx(wanted.tolist())
    assert found["curve"] == pytest.approx(wanted[:2].tolist())
    assert found["full"] == pytest.approx(run.summary().last.exits[-1])


def test_a_sample_of_clients_counts_for_all(train: Callable[..., Run]) -> None:
    run = train(alpha=0.3, epochs=3, **SAMPLED)
    found = simulated(run)
    assert found["full"] == pytest.approx(run.summary().last.exits[-1])
    trace, weights = run.trace("test"), run.weights("test")
    assert trace is not None
    policy = Policy("confidence", threshold=THRESHOLD)
    each = {client: outcome(policy, own, run.exit_macs) for client, own in trace.by_client().items()}
    figures = [[one.accuracy, one.cost, *one.shares] for one in each.values()]
    wanted = np.average(figures, axis=0, weights=[weights[client] for client in each])
    assert found["live"] == pytest.approx(wanted.tolist())
    assert found["curve"] == pytest.approx(wanted[:2].tolist())
