"""Numbers that are not finite: named and counted wherever they appear, and never taken for a result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.bits import contents
from xfed import ClientError, Run

DIVERGING = '''
import torch
from dataclasses import replace
from xfed.algorithms.fedper import FedPer
from xfed.components import BaseSettings
from xfed.protocol.algorithm import method
from xfed.protocol.message import Message


@method("diverging")
class Diverging(FedPer):
    """FedPer with a client whose numbers are not finite in round 2."""

    class Settings(BaseSettings):
        what: str

    def train(self, client, received):
        upload = super().train(client, received)
        if client.id == 3 and client.round == 2:
            if self.settings.what == "loss":
                client.meter.loss_sum = float("inf")
            if self.settings.what == "state":
                name = next(iter(client.state))
                client.state[name] = torch.full_like(client.state[name], float("nan"))
            if self.settings.what == "upload":
                return Message({name: t * float("inf") for name, t in upload.tensors.items()}, upload.values)
        return upload

    def personal(self, client, received):
        if self.settings.what == "evaluation" and client.id == 3:
            raise ZeroDivisionError("no such client")
        made = super().personal(client, received)
        if self.settings.what == "answers" and client.id == 3:
            own = {name: torch.full_like(tensor, 3e38) for name, tensor in made.own.items()}
            return replace(made, own=own)
        return made
'''
PLACES = [("serial", None), ("processes", 2)]


@pytest.fixture
def diverge(train: Callable[..., Run], tmp_path: Path) -> Callable[..., Run]:
    plugin = tmp_path / "diverging.py"
    plugin.write_text(DIVERGING)

    def carry_out(what: str, **changes: Any) -> Run:
        return train(
            changes.pop("name", what),
            method="diverging",
            plugin=plugin,
            sample=1.0,
            diverging={"what": what},
            **changes,
        )

    return carry_out


@pytest.mark.parametrize(("engine", "workers"), PLACES)
@pytest.mark.parametrize(
    ("what", "sentence"),
    [("loss", "diverged: its loss is not finite"), ("state", r"diverged: its own \w+ is not finite")],
)
def test_a_client_that_diverges_is_named_and_left_out(
    diverge: Callable[..., Run], what: str, sentence: str, engine: str, workers: int | None
) -> None:
    run = diverge(what, on_failure="drop", rounds=3, engine=engine, workers=workers)
    assert [(r.round, r.failed, r.replies) for r in run.records()] == [(1, (), 6), (2, (3,), 5), (3, (), 6)]
    [reason] = run.records()[1].reasons
    assert reason.startswith("diverged: its ")
    found = contents(run)
    assert all(
        torch.isfinite(tensor).all() for name, tensor in found.items() if name.startswith(("models/", "client/3"))
    )


def test_by_default_the_run_stops_and_says_who(diverge: Callable[..., Run]) -> None:
    with pytest.raises(ClientError, match=r"client 3 in round 2 diverged: its loss is (nan|inf)"):
        diverge("loss")


@pytest.mark.parametrize(("engine", "workers"), PLACES)
def test_a_rejected_upload_leaves_no_state_behind(
    diverge: Callable[..., Run], engine: str, workers: int | None
) -> None:
    """The first tidying lists the disk: a version that does not count was taken for what replaces the one that does."""
    run = diverge("upload", on_failure="drop", rounds=3, checkpoint_every=2, engine=engine, workers=workers)
    assert [(r.round, r.failed) for r in run.records()] == [(1, ()), (2, (3,)), (3, ())]
    states = sorted(path.name for path in run.directory.client_states.rglob("000003-*"))
    assert states == ["000003-000001.safetensors", "000003-000003.safetensors"], "of rounds 2 and 3, which are kept"


@pytest.mark.parametrize(("engine", "workers"), PLACES)
def test_who_is_evaluated_together_does_not_fail_together(
    diverge: Callable[..., Run], engine: str, workers: int | None
) -> None:
    run = diverge("evaluation", on_failure="drop", rounds=2, engine=engine, workers=workers)
    assert [record.unevaluated for record in run.records()] == [(3,), (3,)]
    with pytest.raises(ClientError, match=r"(?s)client 3 in round 1 failed.*no such client"):
        diverge("evaluation", engine=engine, workers=workers, name="stop")


@pytest.mark.parametrize(("engine", "workers"), PLACES)
def test_answers_that_are_no_numbers_are_no_accuracy(
    diverge: Callable[..., Run], engine: str, workers: int | None
) -> None:
    """The highest of six NaN is the first: without a check, the share of class 0 would pass for an accuracy."""
    run = diverge("answers", on_failure="drop", rounds=2, engine=engine, workers=workers)
    assert [record.unevaluated for record in run.records()] == [(3,), (3,)]
    assert sorted(set(run.metrics()["client"])) == [0, 1, 2, 4, 5]


def test_they_stop_a_run_too(diverge: Callable[..., Run]) -> None:
    with pytest.raises(ClientError, match="client 3 in round 1 diverged: its model's answers are not finite"):
        diverge("answers", rounds=2)


@pytest.mark.parametrize("method", ["local", "xfed"])
def test_a_rate_that_is_far_too_high(train: Callable[..., Run], method: str) -> None:
    """Also of a method that uploads no numbers of its model."""
    with pytest.raises(ClientError, match=r"client \d in round 1 diverged: its ((own )?\w+ is not finite|loss is nan)"):
        train(method=method, lr=1e4)
