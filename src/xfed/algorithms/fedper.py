"""FedPer (Arivazhagan et al., 2019)."""

from __future__ import annotations

from xfed.models.parts import Parts
from xfed.protocol.algorithm import Algorithm, method


@method("fedper")
class FedPer(Algorithm):
    """Shared backbone, personal exits, trained together.

    Objective: (1/m) Σ_j CE_j. Travels and is averaged: the backbone. Stays on the client: every exit.
    """

    travels = Parts.BACKBONE
