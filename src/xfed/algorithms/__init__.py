"""One file per method: the science, and nothing else. A new file here becomes a new method by itself."""
