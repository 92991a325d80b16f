"""What the commands `compare`, `calibrate` and `export` do, for Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xfed import comparison
from xfed.runs.reader import Run, open_run

if TYPE_CHECKING:
    from pandas import DataFrame

    from xfed.bundles.precision import Precision
    from xfed.calibration.policies import Calibration


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs of several methods on one partition, as tables."""

    runs: Sequence[Run]

    def __repr__(self) -> str:
        return str(self.table())

    def table(self) -> DataFrame:
        """Give a row per method, averaged over its seeds: accuracies in [0, 1], bytes, MACs, seconds."""
        from pandas import DataFrame

        from xfed.report.tables import collect

        rows = []
        for row in collect(self.runs):
            plain = asdict(row)
            exits = {f"exit {j}": value for j, value in enumerate(plain.pop("exits"), 1)}
            exits |= {f"exit {j} std": value for j, value in enumerate(plain.pop("exit_stds"), 1)}
            rows.append(plain | exits)
        return DataFrame(rows)

    def clients(self) -> DataFrame:
        """Give a row per run and client, with its accuracy at each exit in the last evaluation."""
        from pandas import concat

        tables = []
        for run in self.runs:
            table = run.clients()
            table.insert(0, "seed", run.experiment.seed)
            table.insert(0, "method", run.experiment.method)
            tables.append(table)
        return concat(tables, ignore_index=True)


def compare(
    methods: Sequence[str],
    seeds: Sequence[int] = (1,),
    out: str | Path = "runs/compare",
    progress: bool = True,
    reuse: comparison.Reuse = "same",
    **settings: Any,
) -> Comparison:
    """Run methods on one partition and one stream of cohorts, or reuse runs that are there already."""
    planned = comparison.plan_comparison(settings, methods, seeds)
    return Comparison(comparison.compare(planned, Path(out), progress, reuse))


def calibrate(
    run: Run | str | Path,
    budget: float | None = None,
    max_drop: float | None = None,
    risk: float | None = None,
    delta: float = 0.1,
    per_client: bool = True,
    out: str | Path | None = None,
) -> Calibration:
    """Choose when to leave early, on calibration samples, and write the policies beside the run (or to `out`).

    Exactly one wish: `budget`, a share of the full model's MACs; `max_drop`, how far accuracy may fall below the full
    model's; `risk`, the largest rate of answers that differ from the full model's, guaranteed at confidence 1 − delta.
    """
    from xfed.calibration.calibrate import CostLimit, MaxDrop, Rule
    from xfed.calibration.policies import choose
    from xfed.calibration.reading import read_traces
    from xfed.calibration.risk import RiskLimit
    from xfed.errors import InputError

    opened = run if isinstance(run, Run) else open_run(run)
    if sum(wish is not None for wish in (budget, max_drop, risk)) != 1:
        raise InputError("calibrate needs exactly one of budget, max_drop and risk")
    traces = read_traces(opened)
    wish: CostLimit | MaxDrop | RiskLimit
    if budget is not None:
        wish = CostLimit(budget * traces.macs[-1], "MACs")
    elif max_drop is not None:
        wish = MaxDrop(max_drop)
    else:
        assert risk is not None
        wish = RiskLimit(risk, delta, "disagreement")
    chosen = choose(traces, traces.macs, "MACs", wish, Rule("confidence", "own"), "shared", per_client)
    chosen.write(Path(out) if out is not None else opened.directory.policies)
    return chosen


def export(
    run: Run | str | Path,
    out: str | Path,
    clients: Sequence[int] | None = None,
    formats: Sequence[str] = ("onnx-stages", "onnx-if"),
    precision: Precision = "fp32",
) -> Path:
    """Write a bundle for devices, of some clients or all, and give its folder."""
    from xfed.bundles.bundle import export as write

    opened = run if isinstance(run, Run) else open_run(run)
    everyone = range(opened.experiment.dealing.clients)
    write(opened, list(everyone if clients is None else clients), list(formats), Path(out), precision)
    return Path(out)
