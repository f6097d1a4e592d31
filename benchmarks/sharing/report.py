"""The table of a comparison: what each rater left unallocated at some loads, and in fragments."""

from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from benchmarks.sharing.compare import RaterMeans
from voda.text import count, counted

LOADS: Final = (80, 90, 95, 100, 110, 120, 130)


def sharing_table(means: Sequence[RaterMeans], workload: str, seeds: int) -> Table:
    """Return the comparison; the least at each load is green, the fragment is that at 100 %."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.title = Text(f"{workload}: GPUs [%] unallocated by load, mean of {counted(seeds, 'order')}", style="bold")
    table.add_column("\nrater", no_wrap=True)
    loads = [load for load in LOADS if load <= means[0].points[-1].load]
    for load in loads:
        table.add_column(f"\n{load} %", justify="right", no_wrap=True)
    table.add_column("frag-\nment", justify="right", no_wrap=True)
    table.add_column("pods\nper s", justify="right", no_wrap=True)
    least = {load: min(f"{each.at(load).unallocated:.2f}" for each in means) for load in loads}
    for each in means:
        cells = [
            Text(text, style="bold green" if text == least[load] and len(means) > 1 else "")
            for load in loads
            for text in [f"{each.at(load).unallocated:.2f}"]
        ]
        table.add_row(Text(each.rater), *cells, f"{each.at(100).fragment:.2f}", count(round(each.placements_per_s)))
    return table
