"""Listings without torch: the catalogue is what the code says, and stands back where it is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from xfed.cli import listing
from xfed.cli.group import COMMANDS


def test_the_catalogue_is_up_to_date() -> None:
    noted = json.loads(listing.CATALOGUE.read_text(encoding="utf-8"))
    assert noted["code"] == listing._digest(), "run `make catalogue`"
    described = listing._described()
    for kind in listing.PACKAGES:
        built_in = {entry["name"]: entry["text"] for entry in noted[kind]}
        assert built_in.items() <= {entry["name"]: entry["text"] for entry in described[kind]}.items()


@pytest.mark.parametrize("command", ["--help", "methods", "datasets", "models", "engines"])
def test_no_torch_for_help_and_listings(command: str) -> None:
    program = f"import sys; from xfed.cli import execute; execute([{command!r}]); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, "torch was imported"
    assert done.stdout


def test_changed_code_is_asked_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "catalogue.json"
    stale.write_text(json.dumps({"code": "old", "methods": []}))
    monkeypatch.setattr(listing, "CATALOGUE", stale)
    assert "fedper" in {entry["name"] for entry in listing.entries("methods")}


def test_every_command_of_the_overview_can_be_built() -> None:
    import click

    from xfed.cli.group import FrontDoor

    door = FrontDoor([])
    for name in COMMANDS:
        assert door.get_command(click.Context(door), name) is not None
    assert door.get_command(click.Context(door), "nothing") is None
