"""`python -m benchmarks.log [NAME ...]`: take every figure of the log, or those whose name contains a NAME."""

import argparse
import sys

import uvloop

from benchmarks.figures import chosen, take
from benchmarks.log.options import Options

FIGURES = ("append", "postgres", "tail", "start", "simulated")


def main(arguments: list[str]) -> None:
    """Take the figures that are asked for."""
    names, options = _parsed(arguments)
    # On the event loop that voda itself runs on.
    take("benchmarks.log", chosen(names, FIGURES), options, uvloop.run)


def _parsed(arguments: list[str]) -> tuple[list[str], Options]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.log", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}; by default all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of events and tries; 1 = as the goals say")
    parser.add_argument("--store", action="append", default=[], help="sqlite, postgres or jetstream; by default all")
    found = parser.parse_args(arguments)
    return found.names, Options(scale=found.scale, stores=tuple(found.store))


if __name__ == "__main__":
    main(sys.argv[1:])
