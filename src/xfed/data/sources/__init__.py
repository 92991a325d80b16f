"""Data sets by name: published ones and users' own. A new file here becomes a new data set by itself."""
