"""A run directory is enough: no raw data, no engine, no re-seeding; what is damaged is said."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.bits import vouch
from tests.conftest import SAMPLED, tiny
from xfed import Experiment, InputError, Run, open_run, run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tiny(out=tmp_path_factory.mktemp("finished") / "run", rounds=2, eval_every=1), progress=False)


@pytest.fixture
def copied(finished: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished.path, tmp_path / "copy"))


def test_opening_a_run_imports_no_engine(finished: Run) -> None:
    program = (
        "import sys, xfed\n"
        f"run = xfed.open_run({str(finished.path)!r})\n"
        "run.model(0), run.summary(), run.card, run.trace('test'), run.clients()\n"
        "print([name for name in sys.modules if name.startswith(('xfed.engines', 'xfed.federation', 'xfed.running'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_is_light() -> None:
    program = "import sys, xfed; print('torch' in sys.modules, callable(xfed.run), xfed.__version__ > '')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


def test_models_need_no_seed(copied: Path, finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = finished.model(1).state_dict()
    monkeypatch.setattr(Experiment, "load_data", lambda self: pytest.fail("the raw data was asked for"))
    monkeypatch.setattr("xfed.experiment.recipe.derive", lambda *_: 12345)
    found = open_run(copied).model(1).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    initial, card = open_run(copied).directory.initial(), open_run(copied).card
    assert initial.parameters.abs().sum() > 0
    assert (card.name, card.input_shape, len(card.classes)) == ("digits", (1, 8, 8), 10)
    assert card.sizes["clients"] == 6
    assert sum(card.sizes[part] for part in ("train", "calibration", "test")) == 1797


def test_held_out_counts_the_clients_that_each_evaluated_one_stands_for(train: Callable[..., Run]) -> None:
    run = train(**SAMPLED)
    trace, metrics = run.trace("calibration"), run.metrics()
    assert trace is not None
    last = metrics[(metrics["round"] == 4) & (metrics["exit"] == 1)].set_index("client")
    assert last["weight"].nunique() == 2
    assert last["weight"].sum() == pytest.approx(20)
    assert run.weights("calibration") == last["weight"].to_dict()
    total = 0.0
    for client, weight in last["weight"].items():
        own = trace.of_client(client)
        total += weight * (own.own.prediction == own.labels[:, None]).mean()
    assert run.held_out() == pytest.approx(total / 20)


@pytest.mark.parametrize("name", ["client-000001.safetensors", "shared-*.safetensors"])
def test_a_truncated_model_is_an_error(copied: Path, name: str) -> None:
    path = next((copied / "models").glob(name))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="is damaged"):
        open_run(copied).model(1)


def test_a_model_that_lacks_a_tensor_or_has_anothers_backbone_is_an_error(copied: Path) -> None:
    from xfed.files import read_tensors, write_tensors

    directory = open_run(copied).directory
    path, shared = directory.client_model(1), directory.shared_file(1)
    tensors = {name: tensor.clone() for name, tensor in read_tensors(path).items()}
    write_tensors(path, dict(list(tensors.items())[1:]), {"shared": shared})
    with pytest.raises(InputError, match=r"client-000001.* is damaged: it has [\d,]+ bytes, and [\d,]+ were written"):
        open_run(copied).model(1)
    vouch(copied)
    with pytest.raises(InputError, match="does not hold the tensors of the run's network"):
        open_run(copied).model(1)
    write_tensors(path, tensors, {"shared": shared})
    vouch(copied)
    assert open_run(copied).model(1)
    backbone = {name: tensor + 1 for name, tensor in read_tensors(directory.models / shared).items()}
    write_tensors(directory.models / shared, backbone)
    with pytest.raises(InputError, match=r"shared-.* is damaged or was changed: its content is not what was written"):
        open_run(copied).model(1)
    vouch(copied)
    with pytest.raises(InputError, match="its content is not what its name says"):
        open_run(copied).model(1)


@pytest.mark.parametrize("name", ["environment.json", "data.json", "settings.yaml", "rounds.parquet"])
def test_a_damaged_file_is_named(copied: Path, name: str) -> None:
    (copied / name).write_bytes(b"{'no': \xff")

    def read() -> None:
        opened = open_run(copied)
        opened.environment(), opened.card, opened.records()

    with pytest.raises(InputError, match=name):
        read()


def test_results_are_data_frames(finished: Run) -> None:
    metrics, rounds, clients = finished.metrics(), finished.rounds(), finished.clients()
    assert set(metrics["round"]) == {1, 2}
    assert len(metrics) == 2 * 6 * 3
    assert rounds["round"].tolist() == [1, 2]
    assert (rounds["bytes_up"] > 0).all()
    assert clients["client"].tolist() == list(range(6))
    last = finished.summary().last
    assert clients[["exit 1", "exit 2", "exit 3"]].to_numpy() == pytest.approx(last.accuracies)
    assert clients["accuracy"].mean() == pytest.approx(last.mean)
    assert clients["train"].sum() == finished.card.sizes["train"]
    assert clients["trained"].tolist() == last.trained.tolist()


def test_repr_is_one_line(finished: Run) -> None:
    assert repr(finished) == f"Run({str(finished.path)!r}: xfed on digits, seed 1, finished)"


def test_a_data_folder_is_remembered_and_can_be_given(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    folder = tmp_path / "raw" / "cifar-10-batches-py"
    experiment = Experiment(data_dir=folder.parent, dataset="cifar10")
    assert experiment.place.data_dir == folder.parent
    images = generator.integers(0, 255, (60, 1, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", x=images, y=np.arange(60) % 3)
    made = run(
        tiny(dataset="npz", npz={"path": str(tmp_path / "mine.npz")}, out=tmp_path / "run", rounds=1, clients=3),
        progress=False,
    )
    assert made.dataset().checksum() == made.card.sha256
    np.savez(tmp_path / "mine.npz", x=images[::-1], y=np.arange(60) % 3)
    with pytest.raises(InputError, match="is not the one that run"):
        made.dataset()
    assert open_run(made.path, tmp_path / "elsewhere").experiment.place.data_dir == tmp_path / "elsewhere"


def test_notes_of_a_method(train: Callable[..., Run]) -> None:
    xfed, fedper = train("xfed", rounds=2), train("fedper", method="fedper", rounds=2)
    notes = xfed.notes(2)
    assert set(notes) >= {"cohort", "similarity", "students", "teacher_weights", "teacher_students", "teachers"}
    assert notes["teacher_weights"].sum(1).tolist() == pytest.approx([1.0] * 3)
    assert notes["students"].shape == (3, 3)
    assert fedper.notes(2) == {}
