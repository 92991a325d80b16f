"""The model card of a bundle: what was trained on what, how well each exit does, and what it must not be used for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np
import yaml

from xfed.bundles.precision import Comparison
from xfed.runs.reader import Run
from xfed_runtime.answers import ANSWERS

NOT_FOR = (
    "Decisions about people's rights, health, safety or credit: nobody has examined it for that.",
    "Inputs of another kind than its data set's, or of classes that it does not know: it always names one of its own.",
    "Another client than the one whose network it is: accuracies are those of each client on its own samples.",
    "Confidences as probabilities of being right, unless they were calibrated as such: thresholds only rank answers.",
)


@dataclass(frozen=True)
class ExitFigures:
    """One exit on the clients' test samples: mean and standard deviation over clients, where known; and its cost."""

    macs: int
    accuracy: float | None = None
    std: float | None = None
    running: float | None = None
    """Mean accuracy where the exit answers with the running mean of the exits passed."""
    stored: tuple[float, float] | None = None
    """Accuracy in float32 and as stored here, mean over the clients of the bundle, where that is less than float32."""


@dataclass(frozen=True)
class Card:
    """What a reader should know before using the networks of a bundle."""

    dataset: str
    method: str
    model: str
    settings: Mapping[str, Any]
    """Everything that the run was started with, but where it ran."""
    exits: Sequence[ExitFigures]
    clients: int
    calibration: str
    """What the policies rest on."""
    fingerprint: str = ""
    """Identifies the run: its settings, its data and the code."""
    precision: str = "fp32"

    def to_json(self) -> dict[str, Any]:
        """Give the fields for the manifest."""
        return asdict(self) | {"not_for": list(NOT_FOR)}


def card_of(run: Run) -> Card:
    """Gather the card of a finished run."""
    experiment = run.experiment
    macs = run.exit_macs
    own, running = (run.summary(answers).last for answers in ANSWERS)
    share = calibration_share(run)
    return Card(
        dataset=experiment.dataset,
        method=experiment.method,
        model=experiment.model,
        settings=_without_folders(experiment.model_dump(mode="json", exclude={"place": True, "settings": {"engine"}})),
        exits=[ExitFigures(*each) for each in zip(macs, own.exits, own.exit_stds, running.exits, strict=True)],
        clients=experiment.dealing.clients,
        calibration=(
            f"budgets were chosen on each client's calibration samples, {share:.0%} of what it would train on, and "
            "never on test samples"
            if share
            else "nothing was calibrated: the run set no calibration samples aside"
        ),
        fingerprint=run.environment()["fingerprint"],
    )


def calibration_share(run: Run) -> float:
    """Tell which share of what clients would train on was set aside, as they hold it: a file may say otherwise."""
    partition = run.partition()
    aside, train = (int(partition.sizes(part).sum()) for part in ("calibration", "train"))
    return aside / max(1, aside + train)


def stored_in(card: Card, precision: str, compared: Sequence[Comparison]) -> Card:
    """Complete a card with the precision that the networks are stored in, and with what that costs in accuracy."""
    if precision == "fp32":
        return card
    ranges = {"fp16": "", "int8": ", ranges of activations included"}[precision]
    if not compared:
        measured = {"fp16": "", "int8": "; ranges of activations are each input's own, measured as it comes"}[precision]
        why = f"thresholds and expected figures are float32's: no samples were at hand at the export{measured}"
        return replace(card, precision=precision, calibration=f"{card.calibration}; {why}")
    both = np.mean([[each.float_accuracy, each.stored_accuracy] for each in compared], axis=0)
    exits = [replace(each, stored=(float(a), float(b))) for each, a, b in zip(card.exits, *both, strict=True)]
    anew = (
        f"in {precision} they were chosen anew on the same samples{ranges}; a default that was calibrated keeps its "
        f"thresholds, and what it promises of float32 is not guaranteed in {precision}"
    )
    return replace(card, precision=precision, exits=exits, calibration=f"{card.calibration}; {anew}")


def _without_folders(value: Any) -> Any:
    """Leave of each path its last part: where files lay on the machine that trained is nobody's business."""
    if isinstance(value, Mapping):
        return {name: _without_folders(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_folders(each) for each in value]
    return PurePath(value).name if isinstance(value, str) and os.sep in value else value


def markdown(card: Card) -> str:
    """Write the card for people."""
    full = card.exits[-1].macs
    reduced = card.exits[0].stored is not None
    lines = [
        f"# {card.model} on {card.dataset}, trained with {card.method}",
        "",
        f"Early-exit networks of {card.clients} clients of a federation, one for each client, stored in "
        f"{card.precision}. An input may leave at any exit; what comes after it is then not computed.",
        "",
        "## Figures",
        "",
        "Accuracy on each client's own test samples, mean ± standard deviation over clients; every exit alone, "
        "float32.",
        "",
        "| exit | MACs | of full | own answers | running answers |"
        + f" clients here, fp32 | clients here, {card.precision} |" * reduced,
        "|---|---|---|---|---|" + "---|---|" * reduced,
    ]
    for number, each in enumerate(card.exits, 1):
        known = each.accuracy is not None and each.std is not None
        accuracy = f"{each.accuracy:.2%} ± {100 * (each.std or 0):.2f}" if known else "not measured"
        beside = "" if each.stored is None else f" {each.stored[0]:.2%} | {each.stored[1]:.2%} |"
        running = "not measured" if each.running is None else f"{each.running:.2%}"
        lines.append(f"| {number} | {each.macs:,} | {each.macs / full:.1%} | {accuracy} | {running} |{beside}")
    lines += ["", "## Calibration", "", f"{card.calibration[:1].upper()}{card.calibration[1:]}.", ""]
    lines += ["## Must not be used for", "", *(f"- {line}" for line in NOT_FOR), "", "## Settings", "", "```"]
    lines += yaml.safe_dump(dict(card.settings), sort_keys=False, allow_unicode=True).splitlines()
    return "\n".join([*lines, "```", "", f"Run {card.fingerprint or 'unknown'}.", ""])
