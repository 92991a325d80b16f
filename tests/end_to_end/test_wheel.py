"""The packages as users get them: wheels in environments that know nothing of this source tree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.deployed import deploy, random_clients
from xfed.data.dataset import datasets
from xfed.models.convnet import ConvNet
from xfed_runtime import Bundle, Policy

ROOT = Path(__file__).parents[2]

ON_A_DEVICE = """
import sys, numpy
from xfed_runtime import Bundle, Policy
bundle = Bundle.open("bundle")
samples = numpy.load("samples.npy")
for format in bundle.formats:
    found = bundle.runtime(1, format).predict(samples, Policy("margin", threshold=0.1, answer="running"))
    numpy.savez(format, probabilities=found.probabilities, exits=found.exits, macs=found.macs)
print(*(name for name in ("torch", "xfed", "onnx") if name in sys.modules))
"""

ABOUT = "print(metadata({0!r})['License-Expression'], *files({0!r}))"

Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Run a command in an empty folder and give what it prints."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def carry_out(*command: str | Path) -> str:
        done = subprocess.run(
            [str(part) for part in command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return carry_out


def install(call: Call, folder: Path, *sources: Path, extra: str = "") -> Path:
    """Build source distributions, wheels from them, and install these, with an extra, into a new environment.

    Gives the folder of its programs.
    """
    for source in sources:
        call(sys.executable, "-m", "build", "--outdir", folder / "dist", source)
    wheels = [f"{wheel}{extra}" for wheel in sorted((folder / "dist").glob("*.whl"))]
    assert len(wheels) == len(sources)
    call(sys.executable, "-m", "venv", folder / "clean")
    call(folder / "clean/bin/python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", *wheels)
    return folder / "clean" / "bin"


@pytest.mark.slow
def test_wheels_install_into_a_clean_environment_and_run(tmp_path: Path, call: Call) -> None:
    binaries = install(call, tmp_path, ROOT / "runtime", ROOT)
    where = call(binaries / "python", "-c", "import xfed; print(xfed.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path / "clean")
    shown = call(binaries / "xfed", "run", "--rounds", "2", "--clients", "4", "--convnet.width", "4", "--out", "mine")
    assert "finished" in shown
    assert (tmp_path / "mine" / "models" / "client-000003.safetensors").is_file()
    assert "1 run in page.html" in call(binaries / "xfed", "report", "mine", "-o", "page.html")
    archives = sorted((tmp_path / "dist").glob("*.tar.gz"))
    call(binaries / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", *archives)
    assert "mine: xfed on digits, 2 rounds" in call(binaries / "xfed", "show", "mine")
    for name in ("xfed", "xfed-runtime"):
        told = call(binaries / "python", "-c", f"from importlib.metadata import *; {ABOUT.format(name)}")
        assert told.split()[0] == "Apache-2.0"
        assert "licenses/LICENSE" in told


@pytest.mark.slow
def test_a_device_without_torch_predicts_the_same(tmp_path: Path, call: Call) -> None:
    digits = datasets.get("digits")().load()
    network = ConvNet(ConvNet.Settings(width=6, norm="batch")).build(digits.input_shape, 10, "all")
    deploy(network, digits, tmp_path / "bundle", random_clients(network, [0, 1]))
    samples = digits.inputs[:30].numpy()
    np.save(tmp_path / "samples.npy", samples)
    binaries = install(call, tmp_path, ROOT / "runtime", extra="[onnx]")
    installed = call(binaries / "python", "-m", "pip", "list", "--format", "freeze").lower()
    assert "onnxruntime==" in installed
    assert not [line for line in installed.splitlines() if line.split("==")[0] in ("torch", "xfed", "onnx")]
    assert call(binaries / "python", "-c", ON_A_DEVICE).strip() == ""
    policy = Policy("margin", threshold=0.1, answer="running")
    for format in ("onnx-stages", "onnx-if"):
        here = Bundle.open(tmp_path / "bundle").runtime(1, format).predict(samples, policy)
        with np.load(tmp_path / f"{format}.npz") as there:
            assert there["exits"].tolist() == here.exits.tolist()
            assert there["macs"].tolist() == here.macs.tolist()
            np.testing.assert_allclose(there["probabilities"], here.probabilities, rtol=0, atol=1e-6)
