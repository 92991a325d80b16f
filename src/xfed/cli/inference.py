"""`xfed calibrate` and `xfed case-study`: from a trained run to policies, and what they save."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from xfed.calibration.calibrate import SEARCHES, CostLimit, Deadline, MaxDrop, Rule, Search, Wish
from xfed.calibration.policies import choose
from xfed.calibration.reading import Traces, read_traces
from xfed.calibration.risk import Loss, RiskLimit
from xfed.cli.options import DATA_DIR, parse_clients
from xfed.errors import InputError
from xfed.files import write_text
from xfed.inference.case_study import Setup, case_study
from xfed.report import case_study as report
from xfed.report.calibration import show
from xfed.running import open_run
from xfed_runtime.answers import ANSWERS, Answer
from xfed_runtime.device import QUANTILES, Device, DeviceError
from xfed_runtime.policy import SIGNALS, Signal

WISHES = "--budget, --latency, --deadline, --max-drop or --risk"


def inference_commands() -> list[click.Command]:
    """Build the commands."""
    return [CALIBRATE, CASE_STUDY]


def _calibrate(
    path: Path,
    budget: str | None,
    latency: str | None,
    deadline: str | None,
    quantile: str,
    device: Path | None,
    max_drop: str | None,
    risk: float | None,
    delta: float,
    loss: Loss,
    per_client: bool,
    signal: Signal,
    thresholds: Search,
    answer: Answer,
    out: Path | None,
) -> None:
    given = [wish for wish in (budget, latency, deadline, max_drop, risk) if wish is not None]
    if len(given) != 1:
        raise InputError(f"calibrate needs exactly one of {WISHES}")
    if (latency or deadline) is not None and device is None:
        option = "--latency" if latency is not None else "--deadline"
        raise InputError(
            f"{option} needs --device, the table of this device's latencies; 'xfed device-bench' makes one"
        )
    run = open_run(path)
    traces = read_traces(run)
    table = None if device is None else _device(device, traces)
    costs, unit = (traces.macs, "MACs") if table is None else (table.latencies, "ms")
    wish: Wish | RiskLimit | Deadline
    if deadline is not None and table is not None:
        wish = _deadline(deadline, float(quantile), table)
    elif risk is not None:
        if thresholds != "shared":
            raise InputError(f"--risk tests one threshold for all exits; --thresholds {thresholds} does not go with it")
        wish = RiskLimit(risk, delta, loss)
    elif max_drop is not None:
        wish = MaxDrop(_share("--max-drop", max_drop))
    else:
        most = _milliseconds("--latency", latency) if latency else _budget(budget or "", costs, unit)
        wish = CostLimit(most, unit)
    calibration = choose(traces, costs, unit, wish, Rule(signal, answer), thresholds, per_client)
    folder = out or run.path / "policies"
    calibration.write(folder)
    show(calibration, folder)


def _device(path: Path, traces: Traces) -> Device:
    try:
        table = Device.read(path)
    except DeviceError as error:
        raise InputError(str(error)) from None
    if len(table.latencies) != len(traces.macs):
        raise InputError(
            f"latency table {str(path)!r} has {len(table.latencies)} exits, but the run's network {len(traces.macs)}"
        )
    return table


def _deadline(text: str, quantile: float, table: Device) -> Deadline:
    try:
        return Deadline(_milliseconds("--deadline", text), quantile, table.by_quantile(quantile))
    except DeviceError as error:
        raise InputError(str(error)) from None


def _budget(text: str, costs: Sequence[float], unit: str) -> float:
    if text.endswith("%"):
        return _share("--budget", text) * costs[-1]
    if unit != "MACs":
        raise InputError(f"--budget {text!r} is in MACs, but with --device costs are in ms; give a share, or --latency")
    return _number("--budget", text, text, "a share such as 60%, or MACs such as 3.5e8")


def _milliseconds(option: str, text: str) -> float:
    return _number(option, text, text.removesuffix("ms"), "milliseconds such as 5ms")


def _share(option: str, text: str) -> float:
    return _number(option, text, text.removesuffix("%"), "a percentage such as 1%") / 100


def _number(option: str, text: str, digits: str, allowed: str) -> float:
    try:
        value = float(digits)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{option} is {text!r}; allowed: {allowed}")
    return value


CALIBRATE = click.Command(
    "calibrate",
    callback=_calibrate,
    params=[
        click.Argument(["path"], type=Path, metavar="RUN"),
        click.Option(
            ["--budget"], metavar="60%|3.5e8", help="mean MACs per input: a share of the full model's, or a count"
        ),
        click.Option(["--latency"], metavar="5ms", help="mean milliseconds per input, by the table of --device"),
        click.Option(["--deadline"], metavar="20ms", help="milliseconds until each input's answer, by --device"),
        click.Option(
            ["--quantile"],
            type=click.Choice([str(each) for each in QUANTILES]),
            default="0.95",
            show_default=True,
            help="share of answers that shall keep the deadline",
        ),
        click.Option(["--device"], type=Path, metavar="device.json", help="latencies by exit; costs are then in ms"),
        click.Option(
            ["--max-drop"], metavar="1%", help="lowest cost with accuracy at most so many points below the full model's"
        ),
        click.Option(["--risk"], type=float, metavar="0.05", help="largest rate of losses, guaranteed"),
        click.Option(["--delta"], type=float, default=0.1, show_default=True, help="how often a guarantee may fail"),
        click.Option(
            ["--loss"],
            type=click.Choice(["disagreement", "error"]),
            default="disagreement",
            show_default=True,
            help="what --risk bounds: answers that differ from the full model's (needs no labels), or wrong ones",
        ),
        click.Option(
            ["--per-client/--shared"], default=True, show_default=True, help="a policy for each client, or one for all"
        ),
        click.Option(
            ["--signal"],
            type=click.Choice(SIGNALS),
            default="confidence",
            show_default=True,
            help="what is compared with the threshold",
        ),
        click.Option(
            ["--thresholds"],
            type=click.Choice(list(SEARCHES)),
            default="shared",
            show_default=True,
            help="one for all exits, or by exit: geometric shares, or the best that is found",
        ),
        click.Option(
            ["--answer"],
            type=click.Choice(ANSWERS),
            default="own",
            show_default=True,
            help="an exit's own answer, or the running mean of those passed",
        ),
        click.Option(["--out", "-o"], type=Path, metavar="folder", help="where the policies go; default: RUN/policies"),
    ],
    help="Choose when to leave early: within a budget, a deadline, an accuracy or a guaranteed risk.",
)


def _case_study(
    path: Path,
    static: Sequence[Path],
    clients: str,
    epsilon: float,
    noise: float,
    samples: int | None,
    repetitions: int,
    out: Path,
) -> None:
    run = open_run(path)
    if len(run.environment()["network"]["exit_macs"]) == 1:
        raise InputError(f"the network of run {str(path)!r} has a single exit; there is no way to leave early")
    if not 0 <= epsilon <= 1:
        raise InputError(f"--epsilon is {epsilon:g}; allowed: numbers from 0 to 1")
    if not (math.isfinite(noise) and noise >= 0):
        raise InputError(f"--noise is {noise:g}; allowed: numbers from 0")
    chosen = tuple(parse_clients(clients, run.experiment.clients))
    setup = Setup(chosen, epsilon, noise, samples, repetitions)
    measured = list(case_study(run, [open_run(each) for each in static], setup))
    write_text(out / "case-study.md", report.markdown(measured, setup))
    write_text(out / "case-study.csv", report.comma_separated(measured))
    report.draw(measured, out / "case-study.png")
    report.show(measured)
    console = Console()
    console.print(report.notes(setup), highlight=False, style="dim")
    console.print(f"table: {out / 'case-study.md'}   figure: {out / 'case-study.png'}", highlight=False, soft_wrap=True)


CASE_STUDY = click.Command(
    "case-study",
    callback=_case_study,
    params=[
        click.Argument(["path"], type=Path, metavar="RUN"),
        click.Option(
            ["--static"],
            type=Path,
            multiple=True,
            required=True,
            metavar="RUN",
            help="a run to compare with, from its last exit alone; may be given several times",
        ),
        click.Option(["--clients"], default="0-9", show_default=True, metavar="0-9,12|all", help="whose samples"),
        click.Option(
            ["--epsilon"], type=float, default=0.5, show_default=True, help="leave where the confidence exceeds this"
        ),
        click.Option(["--noise"], type=float, default=0.1, show_default=True, help="σ of the noise on noisy inputs"),
        click.Option(["--samples"], type=click.IntRange(min=1), help="at most so many samples of each client"),
        click.Option(
            ["--repetitions"], type=click.IntRange(min=1), default=3, show_default=True, help="timings of each sample"
        ),
        click.Option(
            ["--out", "-o"],
            type=Path,
            default=Path("runs/case-study"),
            show_default=True,
            metavar="folder",
            help="where table and figure go",
        ),
        DATA_DIR,
    ],
    help="Time early exit against static models, sample by sample, on clean and on noisy inputs.",
)
