"""Where clients run: `serial` for debugging, `processes` by default."""
