"""The example notebook runs from top to bottom, and shows what it promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first-steps.ipynb"


def shown(cell: Any) -> dict[str, str]:
    """What a cell's last line gave, by kind."""
    return next((out["data"] for out in reversed(cell["outputs"]) if out["output_type"] == "execute_result"), {})


@pytest.mark.slow
def test_first_steps(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs of one machine are not kept"
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    cells = {cell["source"].splitlines()[-1]: cell for cell in notebook.cells if cell["cell_type"] == "code"}
    trained = cells["run"]
    assert "majority class" in shown(trained)["text/html"]
    [bar] = [out["data"]["text/html"] for out in trained["outputs"] if out["output_type"] == "display_data"]
    assert 'xfed on digits, seed 1 <progress value="12.000" max="12">' in bar
    assert shown(cells["seen[-1]"])["text/plain"].startswith("(12, ")
    assert "image/png" in shown(cells["run.plot()"])
    assert "calibration_error, exit 3" in shown(cells["run.clients().head()"])["text/html"]
    assert (
        float(shown(cells['answers["MACs"].mean() / run.exit_macs[-1]'])["text/plain"].split("(")[-1].rstrip(")")) < 0.9
    )
    assert "fedper" in shown(cells["compared"])["text/html"]
    assert (tmp_path / "runs" / "compare").is_dir()
