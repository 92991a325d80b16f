"""What the commands do, for Python and notebooks: runs that answer, calibrate, export and draw; comparisons."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xfed.errors import InputError, unknown
from xfed.experiment import Experiment
from xfed.runs import reader

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from pandas import DataFrame

    from xfed.bundles.precision import Precision
    from xfed.calibration.calibrate import Search
    from xfed.calibration.policies import Calibration
    from xfed.calibration.risk import Loss
    from xfed.calibration.wishing import Quantity
    from xfed.comparison import Reuse
    from xfed.federation.watching import Callback, Watcher
    from xfed.progress import Shown
    from xfed.report.drawing import Drawing
    from xfed_runtime.answers import Answer
    from xfed_runtime.policy import Policy, Signal


class Run(reader.Run):
    """A run on disk, finished or not, and what can be done with it."""

    def _repr_html_(self) -> str:
        if not (self.records() and self.evaluations()):
            return f"<p>{html.escape(repr(self))}</p>"
        return _html([self], repr(self))

    def predict(
        self,
        client: int,
        inputs: ArrayLike | None = None,
        policy: Policy | float | None = None,
        device: str | Path | None = None,
    ) -> DataFrame:
        """Answer with a client's personal network, a row per input: class, confidence, the exit left at, MACs.

        `inputs` are as the data set stores them, batch first, or a list of texts; nothing: the client's own test
        samples, beside their true classes. `policy` says when to leave: a policy, or a confidence to exceed; nothing:
        what `calibrate` left for this client, else the last exit answers. A policy with a deadline needs the table of
        a `device`, and goes as far as that device would.
        """
        from xfed.calibration.policies import calibrated_policy
        from xfed.inference.answering import predict
        from xfed_runtime.policy import Policy, PolicyError

        try:
            if policy is None:
                last = Policy("fixed", exit=len(self.exit_macs))
                policy = calibrated_policy(self.directory.policies, client) or last
            elif not isinstance(policy, Policy):
                policy = Policy("confidence", threshold=float(policy) if isinstance(policy, Real) else policy)
            return predict(self, client, inputs, policy, None if device is None else Path(device))
        except PolicyError as error:
            raise InputError(str(error)) from None

    def calibrate(self, **wishes: Any) -> Calibration:
        """Choose when to leave early; takes what `xfed.calibrate` takes."""
        return calibrate(self, **wishes)

    def export(self, out: str | Path, **choices: Any) -> Path:
        """Write a bundle for devices; takes what `xfed.export` takes."""
        return export(self, out, **choices)

    def plot(self, path: str | Path | None = None) -> Drawing:
        """Draw accuracy per exit and over rounds; a notebook shows it, `path` (png, svg, pdf) keeps it."""
        return _plot([self], path)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs of several methods on one partition, as tables."""

    runs: Sequence[Run]

    def __repr__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return _html(self.runs, f"{len(self.runs)} runs")

    def table(self) -> DataFrame:
        """Give a row per method, averaged over its seeds: accuracies in [0, 1], bytes, MACs, seconds."""
        from pandas import DataFrame

        from xfed.report.rows import collect

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

    def plot(self, path: str | Path | None = None) -> Drawing:
        """Draw accuracy per exit and over rounds, seeds as a band; `path` (png, svg, pdf) keeps it."""
        return _plot(self.runs, path)


def run(
    experiment: Experiment | None = None,
    progress: Shown = True,
    watchers: Sequence[Watcher | Callback] = (),
    **settings: Any,
) -> Run:
    """Carry out an experiment in a new run directory; settings may also be given as they are: `run(method="fedper")`.

    `watchers` see it go by: functions that are called with each round's record and, where it was evaluated, its
    accuracy; or `Watcher`s, which hear of every client.
    """
    from xfed import running

    if experiment is not None and settings:
        raise InputError(f"run takes an experiment or settings, not both; Experiment(...) takes {', '.join(settings)}")
    return _run(running.run(experiment or Experiment(**settings), progress, watchers))


def resume(
    path: str | Path,
    progress: Shown = True,
    from_round: int | None = None,
    watchers: Sequence[Watcher | Callback] = (),
    **otherwise: Any,
) -> Run:
    """Continue a run after any interruption; a finished run is left as it is, unless there is more to do.

    `otherwise` may change where it runs (engine, workers, data_dir). What changes numbers is recorded in the run: more
    or fewer `rounds`, another `lr` or `on_failure`, and a mended `plugin` in the place of the one of its name.
    """
    from xfed import resuming

    return _run(resuming.resume(path, progress, from_round, watchers, **otherwise))


def open_run(path: str | Path, data_dir: str | Path | None = None) -> Run:
    """Open a run directory; `data_dir` says where the raw data is now, for what needs it."""
    return _run(reader.open_run(path, None if data_dir is None else Path(data_dir)))


def compare(
    methods: str | Sequence[str],
    seeds: Sequence[int] = (1,),
    out: str | Path = "runs/compare",
    progress: Shown = True,
    reuse: Reuse = "same",
    **settings: Any,
) -> Comparison:
    """Run methods on one partition and one stream of cohorts, or reuse runs that are there already."""
    from xfed import comparison

    names = [methods] if isinstance(methods, str) else methods
    planned = comparison.plan_comparison(settings, names, seeds)
    return Comparison([_run(made) for made in comparison.compare(planned, Path(out), progress, reuse)])


def calibrate(
    run: reader.Run | str | Path,
    budget: Quantity | None = None,
    max_drop: Quantity | None = None,
    risk: float | None = None,
    *,
    latency: Quantity | None = None,
    deadline: Quantity | None = None,
    device: str | Path | None = None,
    quantile: float | None = None,
    delta: float | None = None,
    loss: Loss | None = None,
    per_client: bool = True,
    signal: Signal = "confidence",
    thresholds: Search = "shared",
    answer: Answer | None = None,
    out: str | Path | None = None,
) -> Calibration:
    """Choose when to leave early, on calibration samples, and write the policies beside the run (or to `out`).

    Exactly one wish: `budget`, a share of the full model's MACs or a count; `max_drop`, how far accuracy may fall below
    the full model's; `risk`, the largest rate of answers that differ from the full model's (`loss="error"`: that are
    wrong), guaranteed at confidence 1 − delta (0.9); with the table of a `device`, `latency` (mean ms) or `deadline`
    (ms, for such a `quantile` of answers, 0.95). `signal` is compared with a threshold: one for all exits, or by exit
    (`thresholds`); `answer` is an exit's own or the running mean of those passed, by default what the run answers with.
    """
    from xfed.calibration.calibrate import SEARCHES, Rule
    from xfed.calibration.policies import choose
    from xfed.calibration.reading import read_traces
    from xfed.calibration.wishing import Wishes

    wishes = Wishes(budget, latency, deadline, max_drop, risk, delta, loss, quantile, device)
    if thresholds not in list(SEARCHES):
        raise unknown("thresholds", thresholds, SEARCHES)
    if risk is not None and thresholds != "shared":
        raise InputError(f"risk tests one threshold for all exits; thresholds {thresholds} does not go with it")
    opened = _opened(run)
    rule = Rule(signal, opened.experiment.answering() if answer is None else answer)
    traces = read_traces(opened)
    costs, unit = wishes.costs(traces)
    chosen = choose(traces, costs, unit, wishes.wish(traces), rule, thresholds, per_client)
    chosen.write(opened.directory.policies if out is None else Path(out))
    return chosen


def export(
    run: reader.Run | str | Path,
    out: str | Path,
    clients: Sequence[int] | None = None,
    formats: Sequence[str] = ("onnx-stages", "onnx-if"),
    precision: Precision = "fp32",
) -> Path:
    """Write a bundle for devices, of some clients or all, and give its folder."""
    from xfed.bundles.bundle import export as write
    from xfed.bundles.precision import PRECISIONS

    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    opened = _opened(run)
    everyone = range(opened.experiment.dealing.clients)
    write(opened, list(everyone if clients is None else clients), list(formats), Path(out), precision)
    return Path(out)


def _run(made: reader.Run) -> Run:
    return Run(made.directory, made.experiment)


def _opened(run: reader.Run | str | Path) -> reader.Run:
    return run if isinstance(run, reader.Run) else reader.open_run(run)


def _plot(runs: Sequence[Run], path: str | Path | None) -> Drawing:
    from xfed.report.figures import draw_accuracy

    return draw_accuracy(runs, None if path is None else Path(path))


def _html(runs: Sequence[Run], title: str) -> str:
    from xfed.report.rows import collect
    from xfed.report.tables import as_html

    return f"<p>{html.escape(title)}</p>{as_html(collect(runs), runs)}"
