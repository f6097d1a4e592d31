"""`python -m benchmarks.kube [NAME ...]`: take all figures on a real API server, or those whose names contain NAME."""

import argparse
import asyncio
import logging
import sys

from benchmarks.figures import chosen, take
from benchmarks.kube.options import Options

FIGURES = (
    *("start", "running", "resumed", "reaction", "flaps", "resizes", "rest"),
    *("throughput", "gates", "extender", "claims", "takeover", "memory", "idle", "fit"),
)


def main(arguments: list[str]) -> None:
    """Take the figures that are asked for."""
    names, options = _parsed(arguments)
    # The stand-ins ask again whenever a connection breaks, as it does at the end of each figure.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    take("benchmarks.kube.figures", chosen(names, FIGURES), options, asyncio.run)


def _parsed(arguments: list[str]) -> tuple[list[str], Options]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kube", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}; by default all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of nodes, pods and tries; 1 = as the goals say")
    parser.add_argument("--full", action="store_true", help="throughput: all 15,000 jobs and not a tenth of them")
    parser.add_argument("--pools", action="store_true", help="throughput: 30 pools instead of 30 users of one")
    parser.add_argument("--within", type=float, default=600.0, metavar="S", help="throughput: stop after so long")
    parser.add_argument("--profile", default="", metavar="FILE", help="where cProfile writes what the leader did")
    found = parser.parse_args(arguments)
    options = Options(
        scale=found.scale,
        is_full=found.full,
        has_pools=found.pools,
        within_s=found.within,
        profile=found.profile,
    )
    return found.names, options


if __name__ == "__main__":
    main(sys.argv[1:])
