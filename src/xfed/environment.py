"""What a reader needs to know to trust or repeat a run."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.evaluation.accuracy import majority_baseline
from xfed.experiment import Experiment
from xfed.experiment.code import code_digest
from xfed.kernels.choice import Kernels, processor
from xfed.models.costs import Costs


def describe_environment(
    experiment: Experiment, dataset: Dataset, partition: Partition, costs: Costs, kernels: Kernels
) -> dict[str, Any]:
    """Note what a reader needs to trust or repeat the run."""
    mean, std = majority_baseline(dataset, partition)
    described = describe_machine(experiment.fingerprint(dataset.checksum()), costs, kernels)
    return described | {"majority_baseline": {"mean": mean, "std": std}}


def describe_machine(fingerprint: str, costs: Costs, kernels: Kernels) -> dict[str, Any]:
    """Note what is true of a run wherever its data is."""
    return {
        "xfed": version("xfed"),
        "indexed": True,
        "code": code_digest(),
        "commit": _commit(),
        "fingerprint": fingerprint,
        "versions": {"python": platform.python_version()} | {p: version(p) for p in ("torch", "numpy")},
        "machine": {"system": platform.system(), "processor": processor(), "cores": os.cpu_count()},
        "kernels": kernels.note(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "network": {"exit_macs": [costs.leaving_at(j) for j in range(len(costs.exits))]},
    }


def _commit() -> str | None:
    """Name the commit of the source tree, marked when it has changes; nothing for an installed package."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run([*git, "status", "--porcelain", "."], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + (" with changes" if status.stdout.strip() else "")
