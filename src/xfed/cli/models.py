"""`xfed models describe`: a network in figures, for one data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from xfed.cli.options import gather
from xfed.components import load_plugins
from xfed.experiment import Experiment
from xfed.models.describe import describe
from xfed.report.terminal import say, show_table


def _describe(name: str, plugin: Sequence[str], assignments: Sequence[str], **chosen: Any) -> None:
    load_plugins(plugin)
    values = {key: value for key, value in chosen.items() if value is not None}
    experiment = Experiment.from_mapping({**gather({}, assignments), **values, "model": name})
    card = experiment.dataset_source().outline() or experiment.load_data().card
    description = describe(experiment.network(card.input_shape, len(card.classes)), card.example())
    body = []
    for row in description.rows:
        thop = "–" if row.thop_macs is None else f"{row.thop_macs:,}"
        shape = " × ".join(str(size) for size in row.output_shape)
        body.append([row.name, shape, f"{row.parameters:,}", f"{row.bytes:,}", f"{row.macs:,}", thop])
    header = ["part", "output", "parameters", "bytes", "MACs so far, exact", "thop"]
    show_table(
        header,
        body,
        title=f"{name} on {experiment.dataset}: {card.input_shape} → {len(card.classes)} classes",
        wide=True,
    )
    say(
        f"backbone {description.backbone:,} parameters, exits {description.exits:,}; the last exit "
        f"({description.last_exit:,}) adds {description.last_exit_share:.3%} to the backbone's traffic"
    )


DESCRIBE = click.Command(
    "describe",
    callback=_describe,
    params=[
        click.Argument(["name"]),
        click.Option(["--dataset"], metavar="name", help="data set whose inputs and classes it gets  [digits]"),
        click.Option(["--exits"], metavar="all|last", help="an exit after every stage, or the last one alone  [all]"),
        click.Option(["--plugin"], multiple=True, metavar="path", help="Python file that registers more"),
        click.Option(["--set", "assignments"], multiple=True, metavar="key=value", help="set any setting"),
        click.Option(["--data-dir"], metavar="path", help="folder with raw data; default: XFED_DATA, then a cache"),
    ],
    help="Show shapes, parameters, bytes and MACs per stage and exit.",
)
