"""FedRep (Collins et al., 2021)."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field, NonNegativeInt, PositiveInt

from xfed.algorithms.fedper import FedPer
from xfed.components import BaseSettings
from xfed.models.parts import Parts
from xfed.protocol.algorithm import method
from xfed.protocol.client import Client, Personal
from xfed.protocol.message import Message
from xfed.training.trainer import Phase


@method("fedrep")
class FedRep(FedPer):
    """Shared backbone, personal exits, trained one after the other: exits first, then the backbone.

    Objective: (1/m) Σ_j CE_j, in both phases; what does not train is frozen. Travels and is averaged: the backbone.
    Stays on the client: every exit. Costs one more pass over the frozen backbone than FedPer
    (per head epoch, where it has BatchNorm or dropout) and the head epochs on its features.
    """

    class Settings(BaseSettings):
        head_epochs: PositiveInt = Field(
            5, description="epochs on the exits before the backbone trains (the published comparison; original: 10)"
        )
        final_head_epochs: NonNegativeInt = Field(
            0, description="epochs on the exits before the final evaluation, on all clients (original: 10)"
        )

    settings: Settings

    @property
    def tuned_at_the_end(self) -> bool:
        """Tell whether there is a final head pass."""
        return self.settings.final_head_epochs > 0

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Train the exits on a frozen backbone, then the backbone under frozen exits."""
        phase = client.phase(self.joint(client))
        heads = replace(phase, parts=Parts.EXITS, epochs=self.settings.head_epochs)
        return [heads, replace(phase, parts=Parts.BACKBONE)]

    def personal(self, client: Client, received: Message) -> Personal:
        """Evaluate with the client's exits; with a final head pass, after one on a copy."""
        personal = super().personal(client, received)
        if not (client.final and self.settings.final_head_epochs):
            return personal
        phase = client.phase(self.joint(client), parts=Parts.EXITS)
        heads = replace(phase, epochs=self.settings.final_head_epochs)
        tuned = client.tune(client.model(personal.shared, personal.own), [heads])
        return personal.having(client.pack(tuned, Parts.EXITS | Parts.STATISTICS))
