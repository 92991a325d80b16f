"""One typed description of a run, its sections, and what identifies its numbers."""

from xfed.experiment.experiment import Experiment, read_settings

__all__ = ["Experiment", "read_settings"]
