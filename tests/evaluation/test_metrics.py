"""Figures beside accuracy: against sklearn and values by hand, and as columns of a run on any engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score, log_loss

from tests.conftest import tiny
from xfed import InputError, Run
from xfed.evaluation.metrics import METRICS, metric

PLUGIN = '''
import xfed

@xfed.metric("surest")
def surest(logits, labels):
    """Largest logit of all."""
    return logits.max()
'''


def drawn() -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(3)
    return rng.normal(size=(50, 4)).astype(np.float32), rng.integers(0, 4, 50)


def test_loss_and_f1_against_sklearn() -> None:
    logits, labels = drawn()
    powers = np.exp(logits.astype(np.float64))
    assert METRICS["loss"](logits, labels) == pytest.approx(log_loss(labels, powers / powers.sum(1, keepdims=True)))
    assert METRICS["f1"](logits, labels) == pytest.approx(f1_score(labels, logits.argmax(1), average="macro"))


def test_calibration_error_by_hand() -> None:
    # Two answers with confidence 0.8, one of them right; two with 0.6, both right.
    odds = np.log([[0.8, 0.2], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4]]).astype(np.float32)
    labels = np.array([0, 1, 0, 0])
    assert METRICS["calibration_error"](odds, labels) == pytest.approx(0.5 * abs(0.5 - 0.8) + 0.5 * abs(1 - 0.6))
    assert METRICS["loss"](odds + 1000, labels) == pytest.approx(-(np.log([0.8, 0.2, 0.6, 0.6])).mean(), rel=1e-4)


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_columns_of_a_run(engine: str, train: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    found = train(rounds=1, engine=engine, workers=1, metrics="loss,surest", plugin=tmp_path / "plugin.py")
    table = found.metrics()
    assert {"loss", "surest"} < set(table.columns)
    client = 2
    dataset = found.dataset()
    from xfed.data.dealing.partition import open_partition

    rows = open_partition(found.directory.partition)[client].test
    logits = found.model(client)(dataset.normalise(dataset.inputs[rows])).logits[1].detach().numpy()
    row = table[(table["client"] == client) & (table["exit"] == 2)].iloc[-1]
    assert row["surest"] == pytest.approx(logits.max(), rel=1e-5)
    assert row["loss"] == pytest.approx(METRICS["loss"](logits, dataset.labels[rows].numpy()), rel=1e-5)
    assert found.clients().set_index("client")["loss, exit 2"][client] == row["loss"]


def test_figures_are_of_the_answers_that_count(train: Callable[..., Run]) -> None:
    found = train(rounds=1, answers="running", metrics="loss,f1")
    client, dataset = 1, found.dataset()
    rows = found.partition()[client].test
    logits = found.model(client)(dataset.normalise(dataset.inputs[rows])).logits
    labels, passed = dataset.labels[rows].numpy(), np.zeros((len(rows), 10))
    for j in sorted(logits):
        passed += (j + 1) * logits[j].detach().double().softmax(1).numpy()
        means = passed / passed.sum(1, keepdims=True)
        table = found.metrics().set_index(["client", "exit"]).loc[(client, j + 1)]
        row = table.iloc[-1] if table.ndim > 1 else table
        assert row["accuracy"] == pytest.approx(np.mean(means.argmax(1) == labels))
        assert row["f1"] == pytest.approx(f1_score(labels, means.argmax(1), average="macro"))
        assert row["loss"] == pytest.approx(log_loss(labels, means, labels=range(10)), rel=1e-5)


def test_unknown_and_taken_names() -> None:
    with pytest.raises(InputError, match=r"unknown metric 'los' \(did you mean loss\?\)"):
        tiny(metrics="f1,los")
    for name in ("accuracy", "own", "running"):
        with pytest.raises(InputError, match=f"metric '{name}' would take the place"):
            metric(name)


def test_settings_that_came_later_leave_the_identity_of_a_run_alone() -> None:
    usual = tiny()
    decisive = usual.model_dump(mode="json", exclude={"place": True, "settings": {"engine"}})
    assert decisive["evaluation"].pop("metrics") == []
    for name, default in {"optimizer": "sgd", "augment": [], "normalise": "fixed"}.items():
        assert decisive["training"].pop(name) == default
    decisive["device"] = "cpu"
    import hashlib

    text = json.dumps([decisive, "data", []], sort_keys=True)
    assert usual.fingerprint("data") == hashlib.sha256(text.encode()).hexdigest()
    assert tiny(metrics="loss").fingerprint("data") != usual.fingerprint("data")
