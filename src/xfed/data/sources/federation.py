"""Data that is on the nodes of a federation and nowhere else."""

from __future__ import annotations

from xfed.data.dataset import Dataset, DatasetSource, dataset
from xfed.errors import InputError


@dataset("federation")
class FederationData(DatasetSource):
    """What the nodes of a Flower federation hold; it is never in one place, so it cannot be loaded."""

    elsewhere = "its samples are on the nodes; 'xfed flower' starts such a run"

    def load(self) -> Dataset:
        """Say where the samples are."""
        raise InputError(f"data set 'federation' cannot be loaded: {self.elsewhere}")
