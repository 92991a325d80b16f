"""Local: every client for itself (spec 3.1)."""

from __future__ import annotations

from xfed.models.parts import Parts
from xfed.protocol.algorithm import Algorithm, method


@method("local")
class Local(Algorithm):
    """Every client trains its own model alone; nothing travels.

    Objective: (1/m) Σ_j CE_j on the client's own data. A client trains only in rounds in which it is sampled,
    so that its compute equals that of the other methods. Stays on the client: the whole model.
    """

    travels = Parts.NONE
