"""`xfed data`: what there is of each data set, how to get it, and how it is dealt out to clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from xfed.cli.options import DATA_DIR, PanelCommand, experiment_options, gather, glance
from xfed.data.catalogue import Status, check, fetch, list_status, status
from xfed.data.raw.locations import looking_into
from xfed.errors import InputError
from xfed.experiment import Experiment
from xfed.experiment.sections import Evaluating, Place, Training
from xfed.files import write_json
from xfed.report.partition import draw_partition
from xfed.report.terminal import say, show_listing
from xfed.running import partition_of

OF_A_METHOD = (
    *("method", "model", "exits"),
    *Training.model_fields,
    *Evaluating.model_fields,
    *(name for name in Place.model_fields if name not in ("data_dir", "plugin")),
)


def data_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the group."""
    name = click.Argument(["name"])
    dataset = (glance(arguments, "--dataset") or [Experiment.model_fields["dataset"].default])[-1]
    plot = click.Option(["--plot"], type=Path, metavar="path", help="draw clients × classes (png, svg, pdf)")
    save = click.Option(["--save"], type=Path, metavar="path", help="write it to a file (json, safetensors)")
    setting = click.Option(["--set", "assignments"], multiple=True, metavar="key=value", help="set any setting")
    group = click.Group(
        "data",
        help="Data sets: what is here, how to get it, how it is dealt out.",
        commands=[
            click.Command("list", callback=_list, params=[DATA_DIR], help="Show the state of every data set."),
            click.Command("fetch", callback=_fetch, params=[name, DATA_DIR], help="Download if missing, and decode."),
            click.Command(
                "check", callback=_check, params=[name, DATA_DIR], help="Compare the content with what was published."
            ),
            PanelCommand(
                "partition",
                callback=_partition,
                params=[plot, save, setting, *experiment_options(OF_A_METHOD, [dataset])],
                help="Deal a data set out to clients; show, draw or save who gets what.",
            ),
        ],
    )
    return [group]


def _list(data_dir: Path | None) -> None:
    with looking_into(data_dir):
        found = list_status()
    notes = {each.name: each.note for each in found if each.state == "missing"}
    body = [
        (each.name, each.state, *_numbers(each), "" if each.name in notes else str(each.where or each.note))
        for each in found
    ]
    show_listing(["data set", "state", "samples", "classes", "size", "where"], body, whole=5, numbers=(2, 3, 4))
    for name, note in notes.items():
        say(f"{name}: {note}")


def _numbers(each: Status) -> tuple[str, str, str]:
    size = "" if each.bytes is None else f"{each.bytes / 1e6:.1f} MB"
    samples, classes = ("" if value is None else f"{value:,}" for value in (each.samples, each.classes))
    return samples, classes, size


def _fetch(name: str, data_dir: Path | None) -> None:
    with looking_into(data_dir):
        fetch(name)
        _describe(status(name))


def _describe(each: Status) -> None:
    samples, classes, size = _numbers(each)
    say(f"{each.name}: {each.state}, {samples} samples, {classes} classes, {size}")
    if each.decoded is not None:
        say(f"  decoded copy: {each.decoded}")
    for what, digest in each.checksums.items():
        say(f"  sha256 of {what}: {digest}")


def _check(name: str, data_dir: Path | None) -> None:
    with looking_into(data_dir):
        result = check(name)
    body = [(each.what, "ok" if each.ok else "differs", each.found, each.expected) for each in result.findings]
    show_listing([name, "", "here", "published"], body, whole=2)
    if not result.ok:
        raise click.exceptions.Exit(1)


def _partition(plot: Path | None, save: Path | None, assignments: Sequence[str], **_: Any) -> None:
    if save is not None and save.suffix not in (".json", ".safetensors"):
        raise InputError(f"--save is {str(save)!r}; allowed: a file that ends in .json or .safetensors")
    experiment = Experiment.from_mapping(gather({}, assignments))
    dataset = experiment.load_data()
    partition = partition_of(experiment, dataset)
    labels = dataset.labels.numpy()
    counts = partition.class_counts(labels, len(dataset.classes))
    sizes, kinds = counts.sum(axis=1), (counts > 0).sum(axis=1)
    used, shared = len(np.unique(partition.indices)), ", shared between clients" if partition.overlapping else ""
    say(
        f"{len(partition)} clients of {experiment.dataset}: {used:,} of {len(dataset):,} samples{shared}; "
        f"per client {sizes.min()} to {sizes.max()} samples (median {np.median(sizes):g}), "
        f"{kinds.min()} to {kinds.max()} classes (median {np.median(kinds):g})"
    )
    if save is not None:
        if save.suffix == ".safetensors":
            partition.save(save)
        else:
            write_json(save, partition.to_json())
        say(f"partition: {save}")
    if plot is not None:
        draw_partition(partition, labels, dataset.classes, plot)
        say(f"picture: {plot}")
