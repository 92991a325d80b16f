"""`xfed flower`: what it writes, and what it refuses."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from xfed.cli import execute
from xfed.errors import InputError
from xfed.flower.node import Node
from xfed.flower.project import configuration
from xfed.flower.server_app import settings_from


def flat(section: dict[str, object], prefix: str = "") -> dict[str, object]:
    """Join nested keys by dots, as Flower hands them over."""
    found: dict[str, object] = {}
    for name, value in section.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def test_init_writes_an_app_whose_settings_are_understood(tmp_path: Path) -> None:
    assert execute(["flower", "init", str(tmp_path / "app")]) == 0
    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    experiment, settings = settings_from(flat(project["tool"]["flwr"]["app"]["config"]))
    assert (experiment.method, experiment.training.batch_size) == ("xfed", 16)
    assert experiment.settings["model"]["width"] == 32
    assert settings.out == tmp_path / "app" / "run"
    sizes = [len(Node.open(tmp_path / "app" / "nodes" / str(number)).samples[1].train) for number in range(2)]
    assert min(sizes) > 100


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_on_this_machine_no_keys_are_needed(host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["flower", "init", str(tmp_path / "app"), "--address", f"{host}:9000"]) == 0
    assert capsys.readouterr().err == ""
    assert f"--superlink {host}:9000" in (tmp_path / "app" / "README.md").read_text()


def test_across_machines_it_warns_unless_there_are_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away = ["--address", "server.example:8000"]
    assert execute(["flower", "init", str(tmp_path / "open"), *away]) == 0
    assert "xfed: without TLS anyone between a node and server.example:8000 can read" in capsys.readouterr().err
    keys = tmp_path / "keys"
    assert execute(["flower", "keys", str(keys), "--host", "server.example"]) == 0
    assert execute(["flower", "init", str(tmp_path / "closed"), *away, "--keys", str(keys)]) == 0
    assert capsys.readouterr().err == ""
    readme = (tmp_path / "closed" / "README.md").read_text()
    assert "--insecure" not in readme
    assert f"--auth-supernode-private-key {keys}/node-1" in readme
    connection = tomllib.loads((tmp_path / "closed" / "flower" / "config.toml").read_text())["superlink"]["federation"]
    assert connection == {"address": "server.example:8000", "root-certificates": str(keys / "ca.crt")}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--address", "server.example"], "--address is 'server.example'; allowed: host:port"),
        (["--address", "server.example:0"], "allowed: host:port"),
        (["--keys", "none"], "'none' holds no keys of a federation (no ca.crt)"),
    ],
)
def test_init_refuses(options: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["flower", "init", str(tmp_path / "app"), *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "app").exists()


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for command in (["init"], ["keys"], ["demo", "--out"]):
        assert execute(["flower", *command, str(tmp_path)]) == 2
        assert "exists already" in capsys.readouterr().err


def test_keys_can_be_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys"
    assert execute(["flower", "keys", str(keys), "--nodes", "1"]) == 0
    assert execute(["flower", "keys", str(keys), "--add", "late"]) == 0
    assert {"ca.crt", "node-0", "late", "late.pub"} <= {path.name for path in keys.iterdir()}
    assert execute(["flower", "keys", str(tmp_path / "none"), "--add", "late"]) == 2
    assert "holds no keys" in capsys.readouterr().err


def test_the_demo_refuses_a_method_it_does_not_know_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["flower", "demo", "--method", "fedavgg", "--out", str(tmp_path / "demo")]) == 2
    assert "unknown method 'fedavgg' (did you mean fedavg?)" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_defaults_of_another_network_are_left_out(tmp_path: Path) -> None:
    plain, other = (configuration(tmp_path, settings) for settings in ({}, {"model": "resnet18"}))
    assert plain["convnet.width"] == 32
    assert "convnet.width" not in other
    assert settings_from(other)[0].model == "resnet18"
    with pytest.raises(InputError, match=r"convnet\.width is a setting of the model 'convnet'"):
        settings_from(configuration(tmp_path, {"model": "resnet18", "convnet.width": 8}))
