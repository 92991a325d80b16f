"""The part of an experiment that a client must know: method, network and training, without data or place."""

from __future__ import annotations

from typing import Any

from pydantic import Field, NonNegativeInt

from xfed.components import BaseSettings
from xfed.experiment.sections import Training
from xfed.models.network import EarlyExitNetwork, ExitPlacement, ModelSource, models, seeded
from xfed.protocol.algorithm import Algorithm, methods
from xfed.randomness import Purpose, derive
from xfed_runtime.answers import Answer


class Recipe(BaseSettings):
    """What is trained and how; the same on the server, in every worker and on every device."""

    method: str = Field("xfed", description="federated method; `xfed methods` lists them")
    model: str = Field("convnet", description="network; `xfed models` lists them")
    exits: ExitPlacement = Field("all", description="an exit after every stage, or the last one alone")
    answers: Answer | None = Field(
        None,
        description="what an exit answers: its own, or the running mean of those passed; default: the method's choice",
    )
    seed: NonNegativeInt = Field(1, description="decides partition, cohorts, initial weights and batches")
    training: Training = Field(default_factory=Training)
    settings: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="settings of method, data set, model and engine, by role"
    )

    def recipe(self) -> dict[str, Any]:
        """Give the recipe alone, as plain values."""
        plain = self.model_dump(mode="json", include=set(Recipe.model_fields))
        plain["settings"] = {role: plain["settings"][role] for role in ("method", "model") if role in plain["settings"]}
        return plain

    def algorithm(self) -> Algorithm:
        """Build the method."""
        component = methods.get(self.method)
        training = self.training
        resolved = component.resolve(self.settings.get("method", {}))
        return component(resolved, training.bn_statistics, training.local_kd, training.server_step(), training.refit)

    def answering(self) -> Answer:
        """Tell what exits answer with: what the run says, else the method."""
        return self.answers or methods.get(self.method).answers

    def model_source(self) -> ModelSource:
        """Build what builds the network."""
        component = models.get(self.model)
        return component(component.resolve(self.settings.get("model", {})))

    def network(self, input_shape: tuple[int, ...], classes: int) -> EarlyExitNetwork:
        """Build the network that server and clients start from."""
        weights = derive(self.seed, Purpose.INITIAL_WEIGHTS)
        return seeded(self.model_source(), input_shape, classes, self.exits, weights)
