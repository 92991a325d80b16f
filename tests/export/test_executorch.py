"""ExecuTorch programs against PyTorch; where ExecuTorch is not installed, that this is said."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.deployed import Deployed, contents, deploy, random_clients
from xfed import Run
from xfed.cli import execute
from xfed.data.dataset import Dataset
from xfed.errors import InputError
from xfed.export import bundle as export
from xfed.export.bundle import write_bundle
from xfed.export.verify import verify
from xfed.models.transformer import Transformer
from xfed_runtime import Policy

pytestmark = pytest.mark.slow

installed = pytest.mark.skipif(find_spec("executorch") is None, reason="executorch is not installed")


@installed
def test_same_logits_as_pytorch_and_stages_that_are_not_needed_do_not_run(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "stage_graphs", lambda *_: deployed.stages)
    own = random_clients(deployed.network, [0, 3])
    made = deploy(deployed.network, deployed.dataset, tmp_path / "bundle", own, ["onnx-stages", "executorch"])
    bundle, raw = made.bundle(), made.dataset.inputs[:5]
    for client in (0, 3):
        wanted = [logits.numpy() for logits in made.logits(client, raw)]
        runtime = bundle.runtime(client, "executorch")
        called: list[int] = []
        step = runtime.engine.step  # type: ignore[attr-defined]
        monkeypatch.setattr(
            runtime.engine, "step", lambda index, state, s=step, c=called: (c.append(index), s(index, state))[1]
        )
        for index in range(3):
            called.clear()
            got = runtime.predict(raw.numpy(), Policy("fixed", exit=index + 1))
            np.testing.assert_allclose(got.logits, wanted[index], rtol=0, atol=1e-5)
            assert called == list(range(index + 1)) * len(raw)
        by_confidence = Policy("confidence", threshold=0.3, answer="running")
        plain = bundle.runtime(client).predict(raw.numpy(), by_confidence)
        found = runtime.predict(raw.numpy(), by_confidence)
        assert found.exits.tolist() == plain.exits.tolist()
        np.testing.assert_allclose(found.probabilities, plain.probabilities, rtol=0, atol=1e-5)
    checked = verify(bundle)
    assert checked.problems == []
    assert {check.executed for check in checked.checks if check.format == "executorch"} == {None}


@installed
def test_text_is_refused(tmp_path: Path) -> None:
    ids = torch.randint(1, 30, (4, 12))
    data = Dataset("news", ids, torch.arange(4), tuple("abcd"), kind="text")
    settings = Transformer.Settings(vocabulary=40, width=8, depth=2, heads=2, feedforward=16)
    network = Transformer(settings).build((12,), 4, "all").eval()
    with pytest.raises(InputError, match="ExecuTorch takes networks of images"):
        write_bundle(contents(network, data, {0: {}}), ["executorch"], tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.skipif(find_spec("executorch") is not None, reason="executorch is installed")
def test_where_it_is_missing_the_sentence_says_so(
    train: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(rounds=1)
    assert execute(["export", str(run.path), "--format", "executorch", "-o", str(tmp_path / "bundle")]) == 2
    assert "the format executorch needs executorch" in capsys.readouterr().err
    assert not (tmp_path / "bundle").exists()


def test_less_than_float32_is_for_onnx(
    train: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--precision", "int8", "--format", "onnx-stages,executorch", "-o", str(tmp_path / "bundle")]
    assert execute(["export", str(train(rounds=1).path), *options]) == 2
    assert "none but ONNX's" in capsys.readouterr().err
