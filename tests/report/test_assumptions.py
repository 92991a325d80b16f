"""What X-FED assumes, against a run of which every round is followed by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.conftest import tiny
from xfed import InputError, Run, Watcher, run
from xfed.report.assumptions import heterogeneity, shallow_exits, teacher_weights
from xfed.runs.records import RoundRecord


class Follower(Watcher):
    """Copies each client's shallow exits after every round, from the run's own files."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.seen: dict[int, dict[int, np.ndarray]] = {}  # type: ignore[type-arg]

    def round_ended(self, record: RoundRecord, accuracy: object) -> None:
        from xfed.files import read_tensors

        assert self.run is not None
        folder = self.run.directory.client_states / "000"
        found = {
            int(path.name[:6]): read_tensors(path)["shallow_exits"].numpy().copy()
            for path in sorted(folder.glob(f"*-{record.round:06d}.safetensors"))
        }
        self.seen[record.round] = found


def test_against_files_followed_round_by_round(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from xfed.runs.directory import RunDirectory

    follower = Follower()
    experiment = tiny(out=tmp_path / "r", clients=4, sample=1.0, rounds=3)
    follower.run = Run(RunDirectory(tmp_path / "r"), experiment)
    found = run(experiment, progress=False, watchers=[follower])
    shallow = shallow_exits(found)
    changes = np.stack([follower.seen[3][c] - follower.seen[2][c] for c in range(4)])
    network = found.network()
    first = sum(p.numel() for p in network.exits[0].parameters())
    updates = changes[:, :first].astype(np.float64)
    lengths = np.linalg.norm(updates, axis=1)
    cosine = updates @ updates.T / np.outer(lengths, lengths)
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    last = _last_exit_cosines(found)
    differences = [abs(cosine[i, j] - last[i, j]) for i, j in pairs]
    assert shallow[0].difference == pytest.approx(np.mean(differences), rel=1e-5)
    own, theirs = [cosine[p] for p in pairs], [last[p] for p in pairs]
    assert shallow[0].correlation == pytest.approx(np.corrcoef(own, theirs)[0, 1], rel=1e-4)
    assert [each.exit for each in shallow] == [0, 1]
    assert 0 <= shallow[0].weights <= 1


def _last_exit_cosines(found: Run) -> np.ndarray:  # type: ignore[type-arg]
    """The last round's weights rest on these cosines: all of them positive enough, they can be solved for."""
    from xfed.runs.store import ClientStore

    kept = ClientStore(found.directory.server_states, found.directory.checkpoints.read().kept_versions)
    rows = np.stack([kept.get(c)["update"].double().numpy() for c in range(4)])
    lengths = np.linalg.norm(rows, axis=1)
    return np.asarray(rows @ rows.T / np.outer(lengths, lengths))


def test_heterogeneity(train: Callable[..., Run]) -> None:
    found = train(rounds=3)
    deltas = heterogeneity(found)
    assert [each.round for each in deltas] == [1, 2, 3]
    assert deltas[0].mean == 0, "all last exits start alike"
    weights, distances = (found.notes(3)[name].numpy() for name in ("teacher_weights", "distances"))
    by_hand = [sum(weights[i, j] * distances[i, j] for j in range(3) if j != i) for i in range(3)]
    assert deltas[2].mean == pytest.approx(np.mean(by_hand))
    assert deltas[2].largest == pytest.approx(max(by_hand))
    assert deltas[2].rate == pytest.approx(0.05 * 0.99**2)


def test_weights_stand_in_the_order_of_clients(train: Callable[..., Run]) -> None:
    notes = train(rounds=2).notes(2)
    matrix, students, teachers = teacher_weights(notes)
    assert students.tolist() == teachers.tolist() == sorted(notes["teachers"].tolist())
    noted = notes["teacher_students"].tolist()
    for i, j in np.ndindex(matrix.shape):
        was = notes["teacher_weights"][noted.index(students[i]), noted.index(teachers[j])]
        assert matrix[i, j] == was.item()


def test_sparse_checkpoints_are_refused(train: Callable[..., Run]) -> None:
    with pytest.raises(InputError, match="checkpoint_every must be 1"):
        shallow_exits(train(checkpoint_every=2))


def test_heterogeneity_is_of_participants_who_teach_each_other(train: Callable[..., Run]) -> None:
    """With all clients as teachers, who stand in the order of their numbers, columns mean others than distances do."""
    found = train(sample=1.0, rounds=3, xfed={"teachers": "all"})
    alike = [r for r in (1, 2, 3) if found.notes(r)["teachers"].tolist() == found.notes(r)["cohort"].tolist()]
    assert len(alike) < 3, "with every cohort in order, no proof"
    assert all(found.notes(r)["teacher_weights"].shape == found.notes(r)["distances"].shape for r in (1, 2, 3))
    assert [each.round for each in heterogeneity(found)] == alike
