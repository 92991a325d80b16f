"""The example in C++, against the runtime; compiled where ONNX Runtime's headers are at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.deployed import Deployed
from xfed_runtime import Policy

EXAMPLE = Path(__file__).parents[2] / "examples" / "cpp" / "early_exit.cpp"
HEADER = "onnxruntime_cxx_api.h"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, linked with the library that Python's own package brings."""
    places = [os.environ.get("ONNXRUNTIME_INCLUDE", ""), "/usr/include/onnxruntime", "/usr/local/include"]
    places += ["/usr/include", "/usr/local/include/onnxruntime"]
    include = next((place for place in places if place and Path(place, HEADER).is_file()), None)
    compiler = shutil.which("c++")
    libraries = sorted(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"))
    if compiler is None or include is None or not libraries:
        pytest.skip(f"needs a C++ compiler, {HEADER} (set ONNXRUNTIME_INCLUDE) and ONNX Runtime's library")
    made = tmp_path_factory.mktemp("cpp") / "early_exit"
    library = libraries[0]
    soname = made.parent / "libonnxruntime.so.1"
    soname.symlink_to(library)
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-isystem", include]
    link = [str(soname), f"-Wl,-rpath,{made.parent},-rpath,{library.parent}"]
    subprocess.run([compiler, *flags, str(EXAMPLE), *link, "-o", str(made)], check=True)
    return made


def run(program: Path, content: bytes, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([program, *arguments], input=content, capture_output=True, check=False)


@pytest.mark.parametrize("client", [0, 3])
def test_answers_are_the_runtimes(program: Path, deployed: Deployed, client: int) -> None:
    bundle, pixels = deployed.bundle(), deployed.dataset.inputs[:6].numpy()
    runtime = bundle.runtime(client)
    confidence = runtime.predict(pixels, Policy("fixed", exit=1)).probabilities.max(axis=1)
    threshold = float(np.median(confidence))
    wanted = runtime.predict(pixels, Policy("confidence", threshold=threshold))
    graphs = [bundle.root / name for name in bundle.manifest.clients[client].networks["onnx-stages"]]
    for row, prepared in enumerate(bundle.inputs.prepare(pixels)):
        done = run(program, prepared.tobytes(), str(threshold), "1x8x8", *graphs)
        assert done.returncode == 0, done.stderr
        exit_number, label, sure = done.stdout.split()
        assert (int(exit_number), int(label)) == (wanted.exits[row] + 1, wanted.labels[row])
        assert abs(float(sure) - wanted.probabilities[row].max()) < 1e-5
    assert set(wanted.exits) > {0}, "some leave at exit 1, and not all"


def test_wrong_input_is_told(program: Path, deployed: Deployed) -> None:
    assert run(program, b"", "0.5").returncode == 2
    graph = deployed.path / "networks" / "client-000003.stage-1.onnx"
    done = run(program, b"\0" * 8, "0.5", "1x8x8", graph)
    assert (done.returncode, done.stderr) == (2, b"the input has 8 bytes; this network takes 256\n")
    assert run(program, b"\0" * 256, "0.5", "1x8x8", "none.onnx").returncode == 1
