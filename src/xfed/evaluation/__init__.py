"""Per-exit accuracy, and honest summaries over clients."""
