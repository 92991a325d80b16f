"""`xfed calibrate` and `xfed case-study`: from a trained run to policies, and what they save."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from xfed.api import calibrate
from xfed.calibration.calibrate import SEARCHES
from xfed.calibration.risk import DELTA, LOSSES
from xfed.calibration.wishing import QUANTILE
from xfed.cli.options import DATA_DIR, DEVICE, RUN, clients_option, out_option, parse_clients
from xfed.cli.output import WIDE, Output, number_for
from xfed.errors import InputError
from xfed.files import write_text
from xfed.inference.case_study import Setup, case_study
from xfed.report import case_study as report
from xfed.report.calibration import show
from xfed.runs.reader import open_run
from xfed_runtime.answers import ANSWERS
from xfed_runtime.device import QUANTILES
from xfed_runtime.policy import SIGNALS


def inference_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the commands."""
    return [CALIBRATE, CASE_STUDY]


def _calibrate(path: Path, quantile: str | None, out: Path | None, wide: bool, **wishes: Any) -> None:
    run = open_run(path)
    folder = out or run.directory.policies
    share = None if quantile is None else float(quantile)
    show(calibrate(run, quantile=share, out=folder, **wishes), folder, wide)


CALIBRATE = click.Command(
    "calibrate",
    callback=_calibrate,
    params=[
        RUN,
        click.Option(
            ["--budget"], metavar="60%|3.5e8", help="mean MACs per input: a share of the full model's, or a count"
        ),
        click.Option(["--latency"], metavar="5ms", help="mean milliseconds per input, by the table of --device"),
        click.Option(["--deadline"], metavar="20ms", help="milliseconds until each input's answer, by --device"),
        click.Option(
            ["--quantile"],
            type=click.Choice([str(each) for each in QUANTILES]),
            help=f"share of answers that shall keep the deadline  [{QUANTILE}]",
        ),
        DEVICE,
        click.Option(
            ["--max-drop"], metavar="1%", help="lowest cost with accuracy at most so many points below the full model's"
        ),
        click.Option(["--risk"], type=float, metavar="0.05", help="largest rate of losses, guaranteed"),
        click.Option(["--delta"], type=float, help=f"how often the guarantee of --risk may fail  [{DELTA}]"),
        click.Option(
            ["--loss"],
            type=click.Choice(LOSSES),
            help="what --risk bounds: answers that differ from the full model's (needs no labels), or wrong ones  "
            "[disagreement]",
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
            help="an exit's own answer, or the running mean of those passed; default: what the run answers with",
        ),
        out_option("where the policies go; default: RUN/policies"),
        WIDE,
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
    data_dir: Path | None,
    **_: Any,
) -> None:
    run = open_run(path, data_dir)
    if len(run.exit_macs) == 1:
        raise InputError(f"the network of run {str(path)!r} has a single exit; there is no way to leave early")
    if not 0 <= epsilon <= 1:
        raise InputError(f"--epsilon is {epsilon:g}; allowed: numbers from 0 to 1")
    if not (math.isfinite(noise) and noise >= 0):
        raise InputError(f"--noise is {noise:g}; allowed: numbers from 0")
    chosen = tuple(parse_clients(clients, run.experiment.dealing.clients))
    setup = Setup(chosen, epsilon, noise, samples, repetitions)
    measured = list(case_study(run, [open_run(each) for each in static], setup))
    table = report.comma_separated(measured)
    stem = out / f"case-study{number_for(lambda suffix: {out / f'case-study{suffix}.csv': table})}"
    write_text(stem.with_suffix(".md"), report.markdown(measured, setup))
    write_text(stem.with_suffix(".csv"), table)
    report.draw(measured, stem.with_suffix(".png"))
    output = Output.wanted()
    report.show(measured, setup, output.wide)
    output.say(f"table: {stem.with_suffix('.md')} (and .csv)   figure: {stem.with_suffix('.png')}")


CASE_STUDY = click.Command(
    "case-study",
    callback=_case_study,
    params=[
        RUN,
        click.Option(
            ["--static"],
            type=Path,
            multiple=True,
            required=True,
            metavar="RUN",
            help="a run to compare with, from its last exit alone; may be given several times",
        ),
        clients_option("0-9", "whose samples"),
        click.Option(
            ["--epsilon"], type=float, default=0.5, show_default=True, help="leave where the confidence exceeds this"
        ),
        click.Option(["--noise"], type=float, default=0.1, show_default=True, help="σ of the noise on noisy inputs"),
        click.Option(["--samples"], type=click.IntRange(min=1), help="at most so many samples of each client"),
        click.Option(
            ["--repetitions"], type=click.IntRange(min=1), default=3, show_default=True, help="timings of each sample"
        ),
        out_option("where table and figure go; earlier results stay", "runs/case-study"),
        DATA_DIR,
        WIDE,
    ],
    help="Time early exit against static models, sample by sample, on clean and on noisy inputs.",
)
