"""Lets `python -m xfed` stand for `xfed`."""

from xfed.cli import main

main()
