"""What Python and notebooks offer besides the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xfed
from tests.conftest import TINY, tiny
from xfed.protocol.words import Failed
from xfed.runs.records import RoundRecord
from xfed_runtime import Device, Policy


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> xfed.Run:
    """A run that tests read."""
    return xfed.run(tiny(out=tmp_path_factory.mktemp("made") / "run"), progress=False)


def test_settings_instead_of_an_experiment(tmp_path: Path) -> None:
    run = xfed.run(progress=False, **{**TINY, "rounds": 1}, method="fedper", out=tmp_path / "r")
    assert isinstance(run, xfed.Run)
    assert run.experiment.method == "fedper"
    with pytest.raises(xfed.InputError, match="an experiment or settings, not both"):
        xfed.run(tiny(), rounds=3)
    assert isinstance(xfed.open_run(str(tmp_path / "r")), xfed.Run)


def test_functions_and_watchers_hear_the_rounds(tmp_path: Path) -> None:
    heard: list[tuple[int, bool]] = []

    class Clients(xfed.Watcher):
        def __init__(self) -> None:
            self.answers: list[int] = []

        def client_answered(self, client: int, failure: Failed | None) -> None:
            self.answers.append(client)

    def after(record: RoundRecord, accuracy: object) -> None:
        heard.append((record.round, accuracy is not None))

    clients = Clients()
    xfed.run(tiny(out=tmp_path / "r", rounds=8), progress=False, watchers=[after, clients])
    assert heard == [(1, False), (2, True), (3, False), *((round, True) for round in range(4, 9))]
    assert len(clients.answers) == 8 * 3 + 6 * 6, "three trained in each round, all six evaluated six times"


def test_predict_is_the_clients_own_network(made: xfed.Run) -> None:
    client = 1
    table = made.predict(client)
    dataset = made.dataset()
    rows = made.trace("test").of_client(client).samples
    inputs = dataset.inputs[rows]
    with torch.no_grad():
        logits = made.model(client)(dataset.normalise(inputs)).logits[2]
    assert table["class"].tolist() == [dataset.classes[label] for label in logits.argmax(1)]
    np.testing.assert_allclose(table["confidence"], logits.softmax(1).amax(1), rtol=1e-5)
    assert set(table["exit"]) == {3}, "nothing calibrated: the last exit answers"
    assert set(table["MACs"]) == {made.exit_macs[-1]}
    assert table["true class"].tolist() == [dataset.classes[label] for label in dataset.labels[rows]]
    early = made.predict(client, inputs.numpy(), policy=0.0)
    assert set(early["exit"]) == {1}
    assert "true class" not in early
    for wrong, sentence in (
        (np.zeros((2, 3, 8, 8)), "inputs are float64 of shape 2 × 3 × 8 × 8; this network takes images"),
        (inputs.numpy() * np.nan, "values that are not finite numbers"),
        (inputs.numpy() * 1000.0, "the images have values from 0 to 16000; allowed: 0 to 16"),
        (["a photo of a seven"], "inputs are text; this network takes images"),
    ):
        with pytest.raises(xfed.InputError, match=sentence):
            made.predict(client, wrong)
    for no_policy, sentence in (
        (1.5, "threshold is 1.5; allowed for confidence: numbers from 0 to 1"),
        ("budget-60%", "threshold is 'budget-60%'; allowed for confidence: numbers from 0 to 1"),
        (Policy("confidence", threshold=(0.5,)), "has 1 thresholds, but the network 3 exits"),
    ):
        with pytest.raises(xfed.InputError, match=sentence):
            made.predict(client, inputs, policy=no_policy)


def test_predict_uses_what_calibrate_left(train: Callable[..., xfed.Run]) -> None:
    run = xfed.open_run(train(rounds=1).path)
    chosen = run.calibrate(budget="60%")
    taken = run.predict(0)["exit"].to_numpy()
    assert np.mean(np.array(run.exit_macs)[taken - 1]) == pytest.approx(chosen.clients[0].reported.cost)


def test_a_deadline_is_kept_by_the_table_of_a_device(train: Callable[..., xfed.Run], tmp_path: Path) -> None:
    run = xfed.open_run(train(rounds=1).path)
    table = Device("desk", "test", 1, (1.0, 3.0, 9.0), (1.0, 3.0, 9.0), 1, exits_p95_ms=(2.0, 6.0, 18.0))
    table.write(tmp_path / "device.json")
    for deadline, exit_number in (("5ms", 1), ("7ms", 2), ("500ms", 3)):
        chosen = run.calibrate(deadline=deadline, device=tmp_path / "device.json")
        answers = run.predict(0, device=tmp_path / "device.json")
        assert set(answers["exit"]) == {exit_number}
        assert chosen.clients[0].reported.accuracy == np.mean(answers["class"] == answers["true class"])
    with pytest.raises(xfed.InputError, match="the policy has a deadline, which needs device"):
        run.predict(0)
    with pytest.raises(xfed.InputError, match=r"latency table .* cannot be read"):
        run.predict(0, device=tmp_path / "no.json")
    with pytest.raises(xfed.InputError, match="device goes with a deadline; the policy is of kind 'confidence'"):
        run.predict(0, policy=0.5, device=tmp_path / "device.json")
    Device("desk", "test", 1, (1.0, 3.0), (1.0, 3.0), 1, exits_p95_ms=(1.0, 3.0)).write(tmp_path / "device.json")
    with pytest.raises(xfed.InputError, match="latencies for 2 exits, but the network has 3"):
        run.predict(0, device=tmp_path / "device.json")


def test_calibrate_takes_numbers_and_text_alike(made: xfed.Run, tmp_path: Path) -> None:
    by_text = made.calibrate(budget="60%", out=tmp_path / "a", signal="entropy", answer="running")
    by_number = xfed.calibrate(made.path, budget=0.6, out=tmp_path / "b", signal="entropy", answer="running")
    by_count = made.calibrate(budget=0.6 * made.exit_macs[-1], out=tmp_path / "c", signal="entropy", answer="running")
    assert by_text == by_number == by_count
    assert by_text.clients[0].policy.kind == "entropy"
    with pytest.raises(xfed.InputError, match="latency needs device"):
        made.calibrate(latency=3.0)


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"risk": 0.2, "loss": "eror"}, r"unknown loss 'eror' \(did you mean error\?\); allowed: disagreement, error"),
        ({"risk": 0.2, "loss": ""}, "unknown loss ''"),
        ({"risk": "5%"}, "risk is '5%'; allowed: numbers between 0 and 1"),
        ({"risk": 0.2, "delta": "much"}, "delta is 'much'; allowed: numbers between 0 and 1"),
        ({"budget": 0.6, "thresholds": "foo"}, "unknown thresholds 'foo'; allowed: geometric, pareto, shared"),
        ({"risk": 0.2, "thresholds": "foo"}, "unknown thresholds 'foo'"),
        ({"budget": 0.6, "signal": "foo"}, "unknown signal 'foo'; allowed: confidence, entropy, margin"),
        ({"budget": 0.6, "answer": "foo"}, "unknown answer 'foo'; allowed: own, running"),
        ({"budget": 0.6, "answer": ""}, "unknown answer ''"),
    ],
)
def test_wishes_that_cannot_be_meant_are_refused_before_any_work(
    made: xfed.Run, monkeypatch: pytest.MonkeyPatch, wishes: dict[str, Any], sentence: str
) -> None:
    monkeypatch.setattr("xfed.calibration.reading.read_traces", lambda _: pytest.fail("work has begun"))
    with pytest.raises(xfed.InputError, match=sentence):
        made.calibrate(**wishes)
    assert not made.directory.policies.exists()


def test_a_budget_of_no_kind_is_refused(made: xfed.Run, tmp_path: Path) -> None:
    with pytest.raises(xfed.InputError, match=r"budget is \[1\]; allowed: a share such as 60%"):
        made.calibrate(budget=[1], out=tmp_path)


def test_a_precision_that_is_none_is_refused_before_any_work(
    made: xfed.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xfed.bundles.bundle.export", lambda *_: pytest.fail("work has begun"))
    with pytest.raises(xfed.InputError, match=r"unknown precision 'int4' .*; allowed: fp16, fp32, int8"):
        made.export(tmp_path / "bundle", precision="int4")


def test_notebooks_see_tables_and_figures(made: xfed.Run, tmp_path: Path) -> None:
    shown = made._repr_html_()
    assert f"{100 * made.summary().last.mean:.2f}" in shown
    assert "<td>majority class</td>" in shown
    assert made.plot()._repr_png_().startswith(b"\x89PNG")
    made.plot(tmp_path / "figure.svg")
    assert "<svg" in (tmp_path / "figure.svg").read_text()
    with pytest.raises(xfed.InputError, match=r"allowed: .png, .svg, .pdf"):
        made.plot(tmp_path / "figure.jpg")
    compared = xfed.Comparison([made])
    assert "<table>" in compared._repr_html_()
    assert len(repr(made.summary())) < 500


def test_rehearsal_says_what_the_run_takes(made: xfed.Run) -> None:
    tried = xfed.rehearse(tiny(method="fedavg", sample=1.0))
    assert tried.first.bytes_up == tried.last.bytes_up > made.network().exits[0].linear.weight.nbytes
    assert tried.first.macs == tried.last.macs
    assert tried.seconds > 0


def test_what_is_given_back_prints_itself(tmp_path: Path) -> None:
    settings = {"rounds": 2, "clients": 4, "epochs": 1, "engine": "serial", "convnet": {"width": 4}}
    tried = str(xfed.rehearse(xfed.Experiment(**settings)))
    assert [line.split("  ")[0] for line in tried.splitlines()[:4]] == [
        "in one round", "received by a client", "sent by a client", "computed by a client",
    ]  # fmt: skip
    assert max(map(len, tried.splitlines())) < 120
    [run] = xfed.compare("fedper", out=tmp_path, progress=False, **settings).runs
    assert run.experiment.method == "fedper"
    said = repr(run.calibrate(budget=0.6))
    assert said.startswith("Calibration(at most ")
    assert " on average: 4 clients; on calibration samples " in said
    assert len(said) < 250
