"""Tables and figures from runs on disk."""
