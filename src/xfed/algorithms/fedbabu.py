"""FedBABU (Oh et al., 2022)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field, NonNegativeInt

from xfed.algorithms.fedper import FedPer
from xfed.components import BaseSettings
from xfed.models.parts import Parts
from xfed.protocol.algorithm import method
from xfed.protocol.client import Client, Personal
from xfed.protocol.message import Message
from xfed.training.trainer import Phase


@method("fedbabu")
class FedBABU(FedPer):
    """Only the backbone is trained together, under exits fixed at random; clients fine-tune a copy at the end.

    Objective: (1/m) Σ_j CE_j, with all exits as initialised and alike for everyone. Travels and is averaged: the
    backbone. Nothing personal is kept; before the final evaluation each client fine-tunes a copy, which no round sees.
    """

    class Settings(BaseSettings):
        tuning_epochs: NonNegativeInt = Field(
            5, description="epochs of fine-tuning before the final evaluation (original: 5)"
        )
        tuning_scope: Literal["all", "head"] = Field(
            "all", description="fine-tune the whole network (original), or the exits alone (its ablation)"
        )

    settings: Settings

    @property
    def tuned_at_the_end(self) -> bool:
        """Tell that it is, unless for no epoch."""
        return self.settings.tuning_epochs > 0

    @property
    def stays(self) -> Parts:
        """The exits never change, so only BatchNorm statistics are kept, where they are local."""
        return Parts.STATISTICS & ~self.travelling

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Train the backbone under fixed exits."""
        return [client.phase(self.joint(client), parts=Parts.BACKBONE)]

    def personal(self, client: Client, received: Message) -> Personal:
        """Evaluate the backbone under the fixed exits; at the very end, a fine-tuned copy."""
        personal = super().personal(client, received)
        if not client.final:
            return personal
        parts = Parts.MODEL if self.settings.tuning_scope == "all" else Parts.EXITS
        phase = replace(client.phase(self.joint(client), parts=parts), epochs=self.settings.tuning_epochs)
        tuned = client.tune(client.model(personal.shared, personal.own), [phase])
        return Personal({}, client.pack(tuned, Parts.MODEL | Parts.STATISTICS))
