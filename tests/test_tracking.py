"""Trackers show what the run directory holds, once for every round, also after a resumption."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import tiny
from xfed import InputError, Run, resume, run

STEPS = [1, 2, 3, 4]


def stopped_and_resumed(train: Callable[..., Run], tracker: str) -> Run:
    """Finish a run, then do its last round once more from the checkpoint before."""
    found = train(track=tracker)
    (found.path / "finished.json").unlink()
    return resume(found.path, progress=False, from_round=3)


@pytest.mark.slow
def test_tensorboard(train: Callable[..., Run]) -> None:
    accumulation = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = stopped_and_resumed(train, "tensorboard")
    events = accumulation.EventAccumulator(str(found.path / "tensorboard"))
    events.Reload()
    losses = events.Scalars("train/loss")
    assert [each.step for each in losses] == STEPS
    assert [each.value for each in losses] == pytest.approx([record.loss for record in found.records()], rel=1e-6)
    shown = {each.step: each.value for each in events.Scalars("accuracy/exit_2")}
    assert shown == pytest.approx({each.round: each.exits[1] for each in found.evaluations()}, rel=1e-6)


@pytest.mark.slow
def test_mlflow(train: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    found = stopped_and_resumed(train, "mlflow")
    client = mlflow.MlflowClient()
    (there,) = client.search_runs([client.get_experiment_by_name("xfed").experiment_id])
    assert there.data.params["method.mu"] == "0.6"
    assert there.data.params["training.rounds"] == "4"
    sent = client.get_metric_history(there.info.run_id, "bytes/up")
    assert {each.step: each.value for each in sent} == {r.round: float(r.bytes_up) for r in found.records()}
    assert there.info.status == "FINISHED"


@pytest.mark.slow
def test_wandb_offline(train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    monkeypatch.delenv("WANDB_MODE", raising=False)
    found = stopped_and_resumed(train, "wandb")
    files = sorted((found.path / "wandb").glob("offline-run-*/*.wandb"))
    assert len({path.name for path in files}) == 1, "a resumed run keeps its id"
    losses = {}
    for path in files:
        store = DataStore()
        store.open_for_scan(str(path))
        while (data := store.scan_data()) is not None:
            record = Record.FromString(data)
            items = {"/".join(i.nested_key) or i.key: i.value_json for i in record.history.item}
            if "train/loss" in items:
                losses[int(items["_step"])] = float(items["train/loss"])
    assert losses == pytest.approx({each.round: each.loss for each in found.records()})


def test_a_tracker_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xfed.tracking.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"track is 'tensorboard', which is not installed; 'pip install xfed\[tens"):
        run(tiny(out=tmp_path / "r", track="tensorboard"), progress=False)
    assert not (tmp_path / "r").exists()


def test_unknown_tracker() -> None:
    with pytest.raises(InputError, match="track is 'comet'"):
        tiny(track="tensorboard,comet")


def test_trackers_do_not_decide_numbers() -> None:
    assert tiny(track="tensorboard").fingerprint("data") == tiny().fingerprint("data")
