"""Every data set with its network: X-FED runs, and the bits hold with BatchNorm and with dropout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bits import contents, differences
from tests.data import published
from tests.end_to_end.test_same_bits import KILLER
from xfed import Experiment, InputError, Run, resume, run
from xfed.protocol.algorithm import methods

NETWORKS: dict[str, Any] = {
    "convnet": {"width": 4},
    "resnet18": {"width": 4, "depth": 1},
    "transformer": {"width": 8, "depth": 2, "feedforward": 16, "vocabulary": 64},
}


@pytest.fixture(scope="module", autouse=True)
def raw_data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Tiny files of every data set in their published formats."""
    root = tmp_path_factory.mktemp("data")
    published.write_folder(root / "cifar-10-batches-py", published.cifar10_files(per_batch=12))
    published.write_folder(root / "cifar-100-python", published.cifar100_files(train=60, test=12))
    published.write_folder(root / "tiny-imagenet-200", published.tiny_imagenet_files())
    published.write_folder(root / "fashion-mnist", published.fashion_mnist_files(train=8, test=2))
    (root / "ag_news").mkdir()
    words = ["market", "goal", "chip", "vote", "the", "a", "of", "win"]
    for part, count in (("train", 48), ("test", 12)):
        rows = [f'"{i % 4 + 1}","{words[i % 8]} {words[i % 3]}","{" ".join(words[: 1 + i % 8])}"' for i in range(count)]
        (root / "ag_news" / f"{part}.csv").write_text("\n".join(rows) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XFED_DATA", str(root))
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        yield


def settings(dataset: str, network: str, **changes: Any) -> dict[str, Any]:
    tiny = {"clients": 2, "sample": 1.0, "rounds": 1, "epochs": 1, "batch_size": 4, "min_samples": 2, "alpha": 10.0}
    values = {**tiny, "engine": "serial", "dataset": dataset, "model": network, network: NETWORKS[network]}
    if dataset == "agnews":
        values["agnews"] = {"max_length": 12, "vocabulary": 64}
    return {**values, **changes}


def carry_out(values: dict[str, Any], out: Path) -> Run:
    return run(Experiment.from_mapping({**values, "out": out}), progress=False)


@pytest.mark.parametrize(
    ("dataset", "network"),
    [
        ("cifar10", "convnet"), ("cifar10", "resnet18"), ("cifar100", "convnet"), ("cifar100", "resnet18"),
        ("tiny-imagenet", "convnet"), ("tiny-imagenet", "resnet18"), ("fashion-mnist", "convnet"),
        ("fashion-mnist", "resnet18"), ("digits", "resnet18"), ("agnews", "transformer"),
    ],
)  # fmt: skip
def test_a_round_of_xfed(tmp_path: Path, dataset: str, network: str) -> None:
    changes = {"clients": 4} if dataset == "digits" else {}
    result = carry_out(settings(dataset, network, **changes), tmp_path / "run")
    assert result.finished
    assert len(result.summary().last.exits) == len(result.environment()["network"]["exit_macs"])
    assert any("backbone" in name or "stages" in name for name in contents(result))


BITS = {
    "batchnorm": settings("cifar10", "resnet18", rounds=4, clients=6, sample=0.5, batch_size=3),
    "batchnorm aggregated": settings(
        "cifar10", "convnet", rounds=4, clients=6, sample=0.5, convnet={"width": 4, "norm": "batch"},
        bn_statistics="aggregate",
    ),
    "dropout": settings("agnews", "transformer", rounds=4, clients=6, sample=0.5),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", BITS)
def test_same_bits_on_workers_and_after_a_kill(tmp_path: Path, case: str) -> None:
    values = BITS[case]
    reference = carry_out(values, tmp_path / "serial")
    spread = {**values, "engine": "processes", "workers": 2}
    assert (
        differences(reference, run(Experiment.from_mapping({**spread, "out": tmp_path / "two"}), progress=False)) == []
    )
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(spread))
    command = ["run", str(tmp_path / "settings.yaml"), "--plugin", str(KILLER), "--out", str(tmp_path / "killed")]
    killed = subprocess.run(
        [sys.executable, "-m", "xfed", *command], env={**os.environ, "XFED_TEST_KILL": "client-state"}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    resumed: Run = resume(tmp_path / "killed", progress=False, engine="serial")
    assert differences(reference, resumed) == []


def test_dropout_is_on_in_training(tmp_path: Path) -> None:
    with_dropout = carry_out(BITS["dropout"], tmp_path / "with")
    network = {**NETWORKS["transformer"], "dropout": 0.0}
    without = carry_out({**BITS["dropout"], "transformer": network}, tmp_path / "without")
    assert "server/model.parameters" in differences(with_dropout, without)


def test_too_small_a_vocabulary_is_refused_before_any_work(tmp_path: Path) -> None:
    network = {**NETWORKS["transformer"], "vocabulary": 4}
    values = {**settings("agnews", "transformer"), "transformer": network}
    with pytest.raises(InputError, match=r"'agnews' has token ids up to \d+.*transformer.vocabulary"):
        carry_out(values, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_every_method_takes_text_and_batchnorm(tmp_path: Path) -> None:
    for name in [component.name for component in methods]:
        for dataset, network in (("agnews", "transformer"), ("cifar100", "resnet18")):
            assert carry_out(settings(dataset, network, method=name), tmp_path / f"{name}-{dataset}").finished
