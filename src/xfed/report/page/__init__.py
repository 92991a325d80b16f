"""One self-contained page about runs: opens from disk, without a network."""
