"""Local: every client for itself."""

from __future__ import annotations

from pydantic import Field

from xfed.components import BaseSettings
from xfed.models.parts import Parts
from xfed.protocol.algorithm import Algorithm, method


@method("local")
class Local(Algorithm):
    """Every client trains its own model alone; nothing travels.

    Objective: (1/m) Σ_j CE_j on the client's own data. A client trains only in rounds in which it is sampled,
    so that its compute equals that of the other methods. Stays on the client: the whole model.
    """

    travels = Parts.NONE

    class Settings(BaseSettings):
        everyone: bool = Field(
            False, description="train all clients in every round: more compute than the other methods, not comparable"
        )

    settings: Settings

    @property
    def everyone(self) -> bool:
        """Tell whether sampling is left out."""
        return self.settings.everyone
