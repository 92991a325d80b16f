"""Measurements that are run by hand: `python -m benchmarks.<name>` from the root of the repository."""
