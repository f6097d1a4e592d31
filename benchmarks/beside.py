"""`python -m benchmarks beside PATH [NAME ...]`: what a re-plan costs beside an older tree, in turns, in one run.

PATH is that tree, set up (`make setup`). After each turn of one tree comes the same turn of the other, so that what
else the machine does weighs on both alike: compare the ratios. A pool that the older tree cannot have, since its jobs
ask for more than GPUs there, is compared with the same one whose jobs ask for GPUs alone.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from benchmarks.figures import chosen
from benchmarks.table import Row, show

_TREE: Final = Path(__file__).parents[1]
_WARM_UP: Final = 30


class Comparison(Struct, frozen=True, kw_only=True):
    """One pool, and the share of the older tree's CPU time that it is to cost at the most."""

    pool: str = "benchmarks.bench_replan:ChangingPool"
    nodes: int
    jobs: int
    virtual_clusters: int = 0
    turns: int = 300
    goals: tuple[float | None, float | None]
    """At the median; at the 99th percentile."""


COMPARISONS: Final = {
    "replan_large": Comparison(nodes=10_000, jobs=20_000, turns=150, goals=(None, 1 / 7)),
    "replan": Comparison(nodes=1_000, jobs=2_000, goals=(None, None)),
    "replan_full": Comparison(nodes=500, jobs=2_000, goals=(None, None)),
    "replan_cells": Comparison(nodes=1_000, jobs=2_000, virtual_clusters=20, goals=(1 / 3, 1 / 3)),
    "replan_fit": Comparison(pool="benchmarks.bench_replan_fit:BoundPool", nodes=1_000, jobs=2_000, goals=(1.2, 1.2)),
}


def compare(name: str, comparison: Comparison, old_tree: Path) -> Sequence[Row]:
    """Take the turns of both trees."""
    with ExitStack() as stack:
        sides = [stack.enter_context(_side(tree, comparison)) for tree in (_TREE, old_tree)]
        turns = [[_turn(side) for side in sides] for _ in range(_WARM_UP + comparison.turns)][_WARM_UP:]
    new, old = (1e3 * np.array(each) for each in zip(*turns, strict=True))
    rows = []
    for what, percent, goal in zip(("p50", "p99"), (50, 99), comparison.goals, strict=True):
        figure, yardstick = float(np.percentile(new, percent)), float(np.percentile(old, percent))
        rows.append(
            Row(
                what=f"{name}, CPU time, {what}",
                figure=figure,
                unit="ms",
                goal=None if goal is None else goal * yardstick,
                yardstick=f"{old_tree.name}, {yardstick:.3g} ms",
                ratio=figure / yardstick,
            )
        )
    return rows


@contextmanager
def _side(tree: Path, comparison: Comparison) -> Iterator["subprocess.Popen[str]"]:
    """Run `pool_turns` with what is in a tree."""
    sizes = map(str, (comparison.nodes, comparison.jobs, comparison.virtual_clusters))
    program = str(tree / ".venv/bin/python"), "-P", str(_TREE / "benchmarks/pool_turns.py")
    with subprocess.Popen(
        [*program, comparison.pool, *sizes],
        cwd=tree,
        env={"PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _turn(side: "subprocess.Popen[str]") -> float:
    """Return the CPU seconds of the next plan."""
    assert side.stdin is not None, "it is a pipe"
    assert side.stdout is not None, "it is a pipe"
    print(file=side.stdin, flush=True)
    if not (answer := side.stdout.readline()):
        sys.exit("a tree made no plan, its output says why")
    return float(answer)


def main(arguments: Sequence[str]) -> None:
    """Compare the pools whose names contain one of those given; all when there is none."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks beside", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("tree", type=Path, help="an older tree, set up")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(COMPARISONS)}")
    options = parser.parse_args(arguments)
    tree = options.tree.resolve()
    if not (tree / ".venv/bin/python").exists():
        sys.exit(f"{options.tree}: expected a tree of voda that is set up, there is no .venv/bin/python")
    for name in chosen(options.names, list(COMPARISONS)):
        print(f"taking {name} ...", file=sys.stderr, flush=True)
        show(compare(name, COMPARISONS[name], tree), f"{name}, beside {tree.name}")
