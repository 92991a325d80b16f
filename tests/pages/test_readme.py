"""The README from top to bottom, in a fresh copy of the tree, in the environment that its own words make."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.pages.blocks import ROOT, Block, read_blocks
from tests.pages.parsing import check
from xfed.protocol.algorithm import methods

README = ROOT / "README.md"
NEAR = 3.0
"""Points of accuracy by which another processor's rounding may move a run of thirty rounds."""


def script(blocks: list[Block], port: int) -> str:
    """Write what a reader does as one shell script; what goes on in the background ends with it."""
    lines = ["set -e"]
    for block in blocks:
        if block.directive == "not run":
            continue
        lines.append(f"echo '--- {block}'")
        if block.language == "python":
            lines += ["python - <<'THE-PAGES-CODE'", block.content, "THE-PAGES-CODE"]
        elif block.language == "console":
            lines += block.commands
            if block.directive == "background":
                command = re.sub(r"\s+#.*", "", lines[-1])
                lines[-1] = f"{command} --port {port} & server=$!; trap 'kill $server; wait $server || true' EXIT"
                lines.append(f"timeout 60 sh -c 'until curl -sf http://127.0.0.1:{port}/ready; do sleep 0.2; done'")
    return "\n".join(lines) + "\n"


def rows(table: str) -> dict[str, list[float]]:
    """Read a Markdown table: the numbers of each method's cells, accuracies first."""
    found = {}
    for line in table.splitlines():
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        numbers = [
            float(text) for cell in cells[1:] if (text := cell.split(" ± ")[0]) and re.fullmatch(r"[\d.]+", text)
        ]
        if numbers:
            found[cells[0]] = numbers
    return found


@pytest.mark.slow
def test_every_block_runs_in_a_fresh_copy(tmp_path: Path) -> None:
    copy = tmp_path / "clone"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    cache = subprocess.run(["pip", "cache", "dir"], capture_output=True, text=True, check=False).stdout.strip()
    kept = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "XFED_DATA", "XDG_CACHE_HOME")
    }
    path = [part for part in os.environ["PATH"].split(":") if not part.startswith(str(ROOT))]
    clean = {"HOME": str(tmp_path / "home"), "PATH": ":".join(path), **({"PIP_CACHE_DIR": cache} if cache else {})}
    (tmp_path / "home").mkdir()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    program = script(read_blocks(README), port)
    process = subprocess.Popen(
        ["bash", "-c", program],
        cwd=copy,
        env={**kept, **clean},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=1800)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said[-4000:]

    shown = re.search(r"what `make demo` writes.*?(\| method .*?)\n\n", README.read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    claimed, written = rows(shown[1]), rows((copy / "runs" / "demo" / "table.md").read_text(encoding="utf-8"))
    assert set(claimed) == {"xfed", "fedper", "fedavg", "local", "majority class"}
    for method, numbers in claimed.items():
        assert abs(numbers[0] - written[method][0]) < NEAR, f"the README has {numbers[0]} for {method}"


def test_blocks_that_are_not_run_parse() -> None:
    skipped = [block for block in read_blocks(README) if block.directive == "not run"]
    for block in skipped:
        assert block.argument, f"{block} does not say why it is not run"
        check(block)


def test_the_table_names_every_method() -> None:
    text = README.read_text(encoding="utf-8")
    table = text[text.index("| method | travels |") :].partition("\n\n")[0]
    assert set(re.findall(r"`([\w-]+)`", table)) == {
        component.name for component in methods if component.__module__.startswith("xfed.algorithms.")
    }
