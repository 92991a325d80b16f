"""FedAvg (McMahan et al., 2017)."""

from __future__ import annotations

from xfed.models.parts import Parts
from xfed.protocol.algorithm import Algorithm, method


@method("fedavg")
class FedAvg(Algorithm):
    """One global model: the average of the clients' models, weighted by their numbers of samples.

    Objective: Σ_i p_i (1/m) Σ_j CE_j. Travels and is averaged: the backbone and every exit. Nothing stays on
    the client; the global model is what is evaluated.
    """

    travels = Parts.MODEL
