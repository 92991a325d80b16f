"""Every table and figure of the paper by name."""

from __future__ import annotations

from xfed.errors import unknown
from xfed.paper import accuracy, beyond, inference, training
from xfed.paper.artefact import Artefact

ARTEFACTS = {
    each.name: each
    for each in (
        Artefact(
            "averaged-accuracy", "Table 1", "Averaged accuracy of 14 methods in 7 settings",
            accuracy.averaged_wanted, accuracy.averaged,
        ),
        Artefact("single-exit", "Table 2", "Single-exit models against X-FED", accuracy.single_wanted, accuracy.single),
        Artefact(
            "local-distillation", "Table 3", "Local distillation on the baselines",
            accuracy.distillation_wanted, accuracy.side_by_side,
        ),
        Artefact("matching-latency", "Table 4", "Time of teacher matching", training.no_runs, training.matching),
        Artefact(
            "ablation", "Table 5", "Distillation, teacher matching, student selection",
            accuracy.ablation_wanted, accuracy.side_by_side,
        ),
        Artefact(
            "motivation", "Figure 2", "Local, joint, joint with local and with cross-client distillation",
            accuracy.motivation_wanted, accuracy.side_by_side,
        ),
        Artefact("per-exit", "Figure 6", "Accuracy of each exit", accuracy.exits_wanted, accuracy.exits),
        Artefact("trade-off", "Figure 7", "Accuracy against MACs", inference.trade_off_wanted, inference.trade_off),
        Artefact("teacher-weights", "Figure 8", "Teacher weights", training.weights_wanted, training.weights),
        Artefact("rounds", "Figure 9", "Accuracy over rounds", training.rounds_wanted, training.rounds),
        Artefact("selection-rate", "Figure 10", "Selection rate R(t)", training.schedules_wanted, training.schedules),
        Artefact("hyperparameters", "Figure 11", "μ and λ", training.hyper_wanted, training.hyper),
        Artefact("exit-threshold", "Figure 12", "Exit threshold ε", inference.threshold_wanted, inference.threshold),
        Artefact("case-study", "Figure 13", "Early exit on a device", inference.case_wanted, inference.case),
        Artefact("communication", "Section 4.5", "Communication cost", training.traffic_wanted, training.traffic),
        Artefact(
            "assumptions", "Sections 4 and 5", "What the paper assumes, measured",
            training.assumptions_wanted, training.assumptions,
        ),
        Artefact(
            "successor", "beyond the paper", "X-FED+ step by step, and the same help for others",
            beyond.successor_wanted, beyond.successor,
        ),
        Artefact(
            "switches", "beyond the paper", "X-FED's open choices, one by one",
            beyond.switches_wanted, beyond.successor,
        ),
    )
}  # fmt: skip


def artefact(name: str) -> Artefact:
    """Look a table or figure up."""
    if name not in ARTEFACTS:
        raise unknown("table or figure", name, ARTEFACTS)
    return ARTEFACTS[name]
