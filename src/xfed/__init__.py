"""Personalized federated learning of early-exit networks."""

from xfed.errors import InputError
from xfed.experiment import Experiment
from xfed.running import Run, open_run, resume, run

__all__ = ["Experiment", "InputError", "Run", "open_run", "resume", "run"]
