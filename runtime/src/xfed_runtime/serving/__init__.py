"""A bundle behind HTTP: needs the extra `serve`, and never torch."""


class ServingError(Exception):
    """The server cannot start as asked, told in one sentence."""
