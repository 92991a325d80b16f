"""Where clients run: `serial` for debugging, `processes` by default. A new file here becomes a new engine by itself."""
