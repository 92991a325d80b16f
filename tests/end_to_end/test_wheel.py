"""The package as users get it: a wheel in an environment that knows nothing of this source tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_wheel_installs_into_a_clean_environment_and_runs(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def call(*command: str | Path) -> str:
        done = subprocess.run(
            [str(part) for part in command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    call(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    call(sys.executable, "-m", "venv", tmp_path / "clean")
    binaries = tmp_path / "clean" / "bin"
    call(binaries / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    where = call(binaries / "python", "-c", "import xfed; print(xfed.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path / "clean")
    shown = call(binaries / "xfed", "run", "--rounds", "2", "--clients", "4", "--convnet.width", "4", "--out", "mine")
    assert "finished" in shown
    assert (tmp_path / "mine" / "models" / "client-000003.safetensors").is_file()
