"""`xfed data` and `xfed models describe` on the embedded data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data import published
from xfed.cli import execute


@pytest.fixture(autouse=True)
def nothing_else_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XFED_DATA", str(tmp_path / "raw"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_list_shows_every_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published.write_folder(tmp_path / "elsewhere" / "cifar-10-batches-py", published.cifar10_files())
    assert execute(["data", "list", "--data-dir", str(tmp_path / "elsewhere")]) == 0
    table, _, notes = capsys.readouterr().out.partition("\ncifar100: ")
    states = {words[0]: words[1] for line in table.splitlines() if len(words := line.split()) > 1}
    assert (states["digits"], states["cifar10"], states["cifar100"]) == ("ready", "found", "missing")
    assert "\nfolder: " in notes, "what is missing has a line of its own that says how to get it"


def test_fetch_decodes_and_check_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published.write_folder(tmp_path / "raw" / "cifar-10-batches-py", published.cifar10_files())
    assert execute(["data", "fetch", "cifar10"]) == 0
    assert "cifar10: ready, 12 samples, 10 classes" in capsys.readouterr().out
    assert execute(["data", "check", "cifar10"]) == 1, "twelve images are not the published sixty thousand"
    assert "differs" in capsys.readouterr().out
    assert execute(["data", "check", "cifar1000"]) == 2
    assert "unknown dataset 'cifar1000'" in capsys.readouterr().err


def test_partition_is_shown_saved_drawn_and_usable(capsys: pytest.CaptureFixture[str]) -> None:
    command = "data partition --partition-by pathological --classes-per-client 2 --clients 5 --save p.json --plot p.png"
    assert execute(command.split()) == 0
    assert "5 clients of digits: 1,797 of 1,797 samples" in capsys.readouterr().out
    assert Path("p.png").stat().st_size > 5_000
    clients = json.loads(Path("p.json").read_text())["clients"]
    assert len({index for client in clients for part in client.values() for index in part}) == 1797
    run = "run --partition p.json --rounds 1 --epochs 1 --engine serial --convnet.width 4 --out run"
    assert execute(run.split()) == 0


def test_clients_that_share_samples(capsys: pytest.CaptureFixture[str]) -> None:
    command = "data partition --partition-by overlapping --clients 3000 --samples-per-client 20 --save"
    for name in ("p.json", "p.safetensors"):
        assert execute([*command.split(), name]) == 0
        assert "3000 clients of digits: 1,797 of 1,797 samples, shared between clients; per client 20 to 20" in (
            capsys.readouterr().out
        )
    run = "run --sample 0.001 --eval-clients 3 --rounds 1 --epochs 1 --engine serial --convnet.width 4"
    for name in ("p.json", "p.safetensors"):
        assert execute([*run.split(), "--partition", name, "--out", f"of-{name}"]) == 0
    kept = [Path(f"of-{name}/partition.safetensors").read_bytes() for name in ("p.json", "p.safetensors")]
    assert kept[0] == kept[1] == Path("p.safetensors").read_bytes()


def test_describe_a_network_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import xfed\n@xfed.model('one-more')\nclass Mine(xfed.ModelSource):\n"
        "    def build(self, input_shape, classes, exits):\n"
        "        from xfed.models.convnet import ConvNet\n"
        "        return ConvNet(ConvNet.Settings(width=4)).build(input_shape, classes, exits)\n"
    )
    (tmp_path / "mine.py").write_text(code)
    plugin = ["--plugin", str(tmp_path / "mine.py")]
    assert execute(["models", "describe", "convnet", "--set", "convnet.width=4"]) == 0
    usual = capsys.readouterr().out
    for command in (["models", "describe", "one-more", *plugin], ["models", *plugin, "describe", "one-more"]):
        assert execute(command) == 0
        assert capsys.readouterr().out.splitlines()[1:] == usual.splitlines()[1:]


def test_describe_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["models", "describe", "convnet", "--set", "convnet.width=4"]) == 0
    shown = capsys.readouterr().out
    # 8² positions × 3 · 3 weights × 4 channels, and an exit of 4 × 10 on the way; 4 · (9 + 1) and 4 · 10 + 10 numbers.
    for piece in ("stage 1", "2,304", "2,344", " 40 ", " 50 ", "digits", "adds 14.881% to the backbone's traffic"):
        assert piece in shown
    assert execute(["models", "describe", "transformer"]) == 2
    assert "transformer" in capsys.readouterr().err
