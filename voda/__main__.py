"""Lets `python -m voda` be the command line, as `voda` is."""

from voda.cli import main

main()
