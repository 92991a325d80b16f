"""The how-to page does what it says: its code and its commands, in its order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.data.published import jpeg, write_folder
from xfed import open_run
from xfed.cli import execute

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "own-data.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:Save this as `(?P<file>.+?)`:\n\n)?```(?P<kind>python|console)\n(?P<content>.+?)```", re.DOTALL)


@pytest.mark.slow
def test_everything_on_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(60):
        name = f"pets/{'cat' if number % 2 else 'dog'}/{number}.png"
        write_folder(tmp_path, {name: jpeg((number, 80 * (number % 2), 9), (20 + number, 30), "PNG")})
    clients = []
    for block in BLOCK.finditer(PAGE):
        if block["file"]:
            Path(block["file"]).write_text(block["content"], encoding="utf-8")
        elif block["kind"] == "python":
            exec(block["content"], {})
        else:
            command = [*block["content"].split()[1:], "--out", f"runs/{len(clients)}"]
            assert execute(command) == 0
            run = open_run(Path("runs", str(len(clients))))
            assert run.finished
            clients.append(run.experiment.dealing.clients)
    assert clients == [5, 10, 5], "all three ways ran; the natural clients are those of the file"
