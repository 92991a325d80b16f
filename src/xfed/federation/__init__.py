"""The one round loop, what clients and server remember, checkpoints, and what watches a run."""
