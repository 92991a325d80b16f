"""The model card of a bundle: what was trained on what, how well each exit does, and what it must not be used for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from xfed.experiment import ELSEWHERE
from xfed.running import Run

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
    precision: str = "float32"

    def to_json(self) -> dict[str, Any]:
        """Give the fields for the manifest."""
        return asdict(self) | {"not_for": list(NOT_FOR)}


def card_of(run: Run) -> Card:
    """Gather the card of a finished run."""
    experiment = run.experiment
    macs = run.environment()["network"]["exit_macs"]
    last = run.summary().last
    share = experiment.calibration
    return Card(
        dataset=experiment.dataset,
        method=experiment.method,
        model=experiment.model,
        settings=_without_folders(experiment.model_dump(mode="json", exclude=set(ELSEWHERE))),
        exits=[ExitFigures(*each) for each in zip(macs, last.exits, last.exit_stds, strict=True)],
        clients=experiment.clients,
        calibration=(
            f"budgets were chosen on each client's calibration samples, {share:.0%} of what it would train on, and "
            "never on test samples"
            if share
            else "nothing was calibrated: the run set no calibration samples aside"
        ),
        fingerprint=run.environment()["fingerprint"],
    )


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
        "| exit | MACs | of full | accuracy |",
        "|---|---|---|---|",
    ]
    for number, each in enumerate(card.exits, 1):
        known = each.accuracy is not None and each.std is not None
        accuracy = f"{each.accuracy:.2%} ± {100 * (each.std or 0):.2f}" if known else "not measured"
        lines.append(f"| {number} | {each.macs:,} | {each.macs / full:.1%} | {accuracy} |")
    lines += ["", "## Calibration", "", f"{card.calibration[:1].upper()}{card.calibration[1:]}.", ""]
    lines += ["## Must not be used for", "", *(f"- {line}" for line in NOT_FOR), "", "## Settings", "", "```"]
    lines += [f"{name}: {value}" for name, value in card.settings.items()]
    return "\n".join([*lines, "```", "", f"Run {card.fingerprint or 'unknown'}.", ""])
