"""Personalized federated learning of early-exit networks.

`run`, `resume`, `compare`, `open_run`, `calibrate` and `export` do what the commands of the same names do. `Algorithm`,
`method` and what stands beside them are what a new method, data set, model or engine is written with. Names are
imported when they are first used, so that importing the package is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xfed.api import Comparison, Run, calibrate, compare, export, open_run, resume, run
    from xfed.components import BaseSettings as Settings
    from xfed.data.dataset import Dataset, DatasetSource, dataset
    from xfed.errors import ClientError, InputError
    from xfed.evaluation.metrics import metric
    from xfed.experiment import Experiment
    from xfed.federation.watching import Watcher
    from xfed.models.network import EarlyExitNetwork, Exit, ModelSource, model
    from xfed.models.parts import Parts
    from xfed.protocol.algorithm import Algorithm, method
    from xfed.protocol.client import Client, Personal
    from xfed.protocol.cohort import Cohort
    from xfed.protocol.engine import Engine, engine
    from xfed.protocol.message import Message
    from xfed.protocol.server import Server
    from xfed.protocol.uploads import Uploads
    from xfed.rehearsal import rehearse
    from xfed.training.objectives import Batch, JointExits, Objective
    from xfed.training.trainer import Phase

_HOMES = {
    "api": ("Comparison", "Run", "calibrate", "compare", "export", "open_run", "resume", "run"),
    "data.dataset": ("Dataset", "DatasetSource", "dataset"),
    "errors": ("ClientError", "InputError"),
    "evaluation.metrics": ("metric",),
    "experiment": ("Experiment",),
    "federation.watching": ("Watcher",),
    "models.network": ("EarlyExitNetwork", "Exit", "ModelSource", "model"),
    "models.parts": ("Parts",),
    "protocol.algorithm": ("Algorithm", "method"),
    "protocol.client": ("Client", "Personal"),
    "protocol.cohort": ("Cohort",),
    "protocol.engine": ("Engine", "engine"),
    "protocol.message": ("Message",),
    "protocol.server": ("Server",),
    "protocol.uploads": ("Uploads",),
    "rehearsal": ("rehearse",),
    "training.objectives": ("Batch", "JointExits", "Objective"),
    "training.trainer": ("Phase",),
}

__all__ = [
    "Algorithm",
    "Batch",
    "Client",
    "ClientError",
    "Cohort",
    "Comparison",
    "Dataset",
    "DatasetSource",
    "EarlyExitNetwork",
    "Engine",
    "Exit",
    "Experiment",
    "InputError",
    "JointExits",
    "Message",
    "ModelSource",
    "Objective",
    "Parts",
    "Personal",
    "Phase",
    "Run",
    "Server",
    "Settings",
    "Uploads",
    "Watcher",
    "__version__",
    "calibrate",
    "compare",
    "dataset",
    "engine",
    "export",
    "method",
    "metric",
    "model",
    "open_run",
    "rehearse",
    "resume",
    "run",
]

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":  # stands in pyproject.toml alone
        return import_module("importlib.metadata").version("xfed")
    if name == "Settings":
        return import_module("xfed.components").BaseSettings
    if name in _HOME_OF:
        return getattr(import_module(f"xfed.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'xfed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
