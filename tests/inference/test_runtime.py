"""Early exit in PyTorch gives what the trace says, and runs no stage that nobody needs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.models.builders import batch, build, small
from xfed.evaluation.traces import ExitTrace
from xfed.inference import runtime as runtime_module
from xfed.inference.runtime import EarlyExitRuntime
from xfed.models.costs import count_costs
from xfed.models.network import EarlyExitNetwork
from xfed_runtime.answers import ANSWERS
from xfed_runtime.device import Latencies
from xfed_runtime.policy import Policy, simulate

NETWORKS = ["convnet", "resnet18", "transformer"]
SAMPLES = 12


@cache
def network_and_inputs(name: str, scale: float = 1.0) -> tuple[EarlyExitNetwork, Tensor, ExitTrace]:
    """A network whose exits tell the inputs apart, the inputs, and the trace of one full pass."""
    network = small(name).eval()
    inputs = batch(name, 6 if name == "transformer" else SAMPLES)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        features = network(inputs).features
        for j, each in enumerate(network.exits):
            mean, deviation = features[j].mean(0), features[j].std(0) + 1e-6
            drawn = torch.randn(each.linear.weight.shape, generator=generator)
            each.linear.weight.copy_(scale * drawn / deviation / mean.shape[0] ** 0.5 * 2)
            each.linear.bias.copy_(-each.linear.weight @ mean)
        logits = network(inputs).logits
    labels = np.zeros(len(inputs), dtype=np.int64)
    trace = ExitTrace.of(0, np.arange(len(inputs)), labels, [logits[j].numpy() for j in sorted(logits)])
    return network, inputs, trace


def away_from_ties(trace: ExitTrace, policy: Policy) -> bool:
    values = getattr(trace.signals(policy.answer), policy.kind)[:, :-1]
    return bool(np.abs(values - np.array(policy.thresholds(trace.exits))).min() > 1e-4)


@pytest.mark.parametrize("name", NETWORKS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_batch_equals_one_by_one_equals_the_trace(name: str, data: st.DataObject) -> None:
    network, inputs, trace = network_and_inputs(name)
    rows = data.draw(st.lists(st.integers(0, len(inputs) - 1), min_size=1, max_size=16), label="batch")
    exits = len(network.exits)
    threshold = st.floats(0, 1) | st.tuples(*[st.floats(0, 1)] * (exits - 1))
    policy = Policy(
        data.draw(st.sampled_from(["confidence", "margin", "entropy"])),
        threshold=data.draw(threshold, label="threshold"),
        answer=data.draw(st.sampled_from(ANSWERS)),
        enabled=data.draw(st.none() | st.tuples(*[st.booleans()] * exits)),
    )
    assume(away_from_ties(trace, policy))
    runtime = EarlyExitRuntime(network)
    together = runtime.predict(inputs[rows], policy)
    simulated = simulate(policy, trace.signals(policy.answer))[rows]
    expected = trace.signals(policy.answer).prediction[rows, simulated]
    assert together.exits.tolist() == simulated.tolist()
    assert together.labels.tolist() == expected.tolist()
    for place, row in enumerate(rows):
        alone = runtime.predict(inputs[row : row + 1], policy)
        assert (alone.exits[0], alone.labels[0]) == (together.exits[place], together.labels[place])
        assert alone.probabilities[0] == pytest.approx(together.probabilities[place], abs=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("answer", ANSWERS)
def test_zero_and_one_exactly(name: str, answer: str) -> None:
    network, inputs, trace = network_and_inputs(name, scale=50.0)
    last = len(network.exits) - 1
    assert (trace.own.confidence[:, :-1] == 1.0).any(), "a saturated sample is the point of strictness"
    for threshold, taken in ((0.0, 0), (1.0, last)):
        policy = Policy("confidence", threshold=threshold, answer=answer)  # type: ignore[arg-type]
        found = EarlyExitRuntime(network).predict(inputs, policy)
        assert set(found.exits.tolist()) == {taken}
        assert found.labels.tolist() == trace.signals(policy.answer).prediction[:, taken].tolist()


@pytest.mark.parametrize("name", NETWORKS)
def test_executed_macs_equal_the_cost_table_for_every_exit(name: str) -> None:
    network, inputs, _ = network_and_inputs(name)
    costs = count_costs(network, inputs)
    runtime = EarlyExitRuntime(network, count=True)
    for j in range(len(network.exits)):
        found = runtime.predict(inputs, Policy("fixed", exit=j + 1))
        assert set(found.macs.tolist()) == {costs.leaving_at(j)}
        assert found.executed == len(inputs) * costs.leaving_at(j)


@pytest.mark.parametrize(
    ("name", "shape", "millions"),
    [
        ("resnet18", (3, 32, 32), ["152.771", "287.001", "421.245", "555.514"]),
        ("convnet", (3, 32, 32), ["3.112", "28.033", "30.394"]),
        ("transformer", (200,), ["103.834", "207.669", "311.503", "415.337"]),
    ],
)
def test_executed_macs_of_the_specification(name: str, shape: tuple[int, ...], millions: list[str]) -> None:
    classes = {"resnet18": 100, "convnet": 10, "transformer": 4}[name]
    network = build(name, shape, classes)
    inputs = torch.ones((1, *shape), dtype=torch.long if name == "transformer" else torch.float32)
    runtime = EarlyExitRuntime(network, count=True)
    found = [runtime.predict(inputs, Policy("fixed", exit=j + 1)).macs[0] for j in range(len(millions))]
    assert [f"{macs / 1e6:.3f}" for macs in found] == millions


def test_samples_that_left_are_computed_no_further() -> None:
    network, inputs, trace = network_and_inputs("convnet")
    costs = count_costs(network, inputs)
    threshold = float(np.sort(trace.own.confidence[:, 0])[5:7].mean())
    seen: list[int] = []
    handle = network.stages[1].register_forward_hook(lambda _, __, output: seen.append(len(output)))
    found = EarlyExitRuntime(network, count=True).predict(inputs, Policy("confidence", threshold=threshold))
    handle.remove()
    assert seen == [6], "six of twelve are not sure enough at exit 1"
    assert found.macs.tolist() == [costs.leaving_at(j) for j in found.exits]
    assert found.executed == sum(costs.leaving_at(j) for j in found.exits)


def test_without_counting_only_the_count_is_missing() -> None:
    network, inputs, _ = network_and_inputs("transformer")
    policy = Policy("confidence", threshold=0.7)
    counted, plain = (EarlyExitRuntime(network, count=count).predict(inputs, policy) for count in (True, False))
    assert (plain.macs, plain.executed) == (None, None)
    assert plain.exits.tolist() == counted.exits.tolist()
    assert plain.probabilities == pytest.approx(counted.probabilities, abs=1e-5)


def test_a_deadline_is_held_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    network, inputs, _ = network_and_inputs("convnet")
    runtime = EarlyExitRuntime(network, latencies=Latencies.of([1.0, 2.0, 3.0]))
    policy = Policy("anytime", deadline_ms=4.5)
    for ticks, taken in (([0.0, 0.001, 0.002, 0.003], 2), ([0.0, 0.003, 0.004, 0.005], 1), ([0.0, 0.1], 0)):
        clock = iter(ticks)
        monkeypatch.setattr(runtime_module.time, "perf_counter", lambda clock=clock: next(clock))
        assert set(runtime.predict(inputs, policy).exits.tolist()) == {taken}


def test_patience_follows_samples_through_compaction() -> None:
    network, inputs, trace = network_and_inputs("resnet18")
    policy = Policy("patience", patience=1, answer="running")
    found = EarlyExitRuntime(network).predict(inputs, policy)
    assert found.exits.tolist() == simulate(policy, trace.running).tolist()
    assert len(set(found.exits.tolist())) > 1


def test_an_empty_batch() -> None:
    network, inputs, _ = network_and_inputs("convnet")
    found = EarlyExitRuntime(network, count=True).predict(inputs[:0], Policy("confidence", threshold=0.5))
    assert (len(found), found.probabilities.shape, found.executed) == (0, (0, 5), 0)
