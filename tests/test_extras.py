"""All extras fit together: what is installed for development holds every one of them, with the pinned versions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_development_installs_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    [own] = [requirement for requirement in extras["dev"] if requirement.startswith("xfed[")]
    half_a_gigabyte = {"executorch"}
    assert set(re.split(r"[\[\],]", own)[1:-1]) == set(extras) - {"dev"} - half_a_gigabyte


def test_what_is_installed_agrees() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_pins_cover_what_ray_and_flower_bring() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = {_name(line.split("==")[0]): line.split("==")[1] for line in text.split()}
    missing = []
    for package in ("ray", "flwr"):
        for requirement in requires(package) or []:
            if "extra" in requirement:
                continue
            name = _name(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
            if name not in pins:
                missing.append(name)
        assert pins[package] == version(package)
    assert missing == []
    assert int(pins["packaging"].split(".")[0]) < 26, "Flower 1.41 does not take packaging 26"


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def test_commands_need_no_extra_to_be_built() -> None:
    absent = ["onnxruntime", "onnx", "onnxscript", "fastapi", "uvicorn", "cryptography", "ray", "flwr", "mlflow"]
    program = f"""
import sys
sys.modules.update(dict.fromkeys({[*absent, "wandb", "tensorboard", "mkdocs"]!r}))
import click
from xfed.cli.group import COMMANDS, FrontDoor
door = FrontDoor([])
print(*(door.get_command(click.Context(door), name).name for name in COMMANDS))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compare" in done.stdout.split()
