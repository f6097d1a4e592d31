"""What a benchmark returns, and how it is printed."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from rich.console import Console
from rich.table import Table


class Row(Struct, frozen=True, kw_only=True):
    """One measured figure."""

    what: str
    figure: float
    unit: str
    goal: float | None = None
    """In the unit of the figure; None = for information."""
    better: Literal["lower", "higher"] = "lower"
    yardstick: str = ""
    """What the ratio compares with, measured in the same run where it can be."""
    ratio: float | None = None
    """figure / the yardstick's figure."""

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        if self.goal is None:
            return None
        return self.figure <= self.goal if self.better == "lower" else self.figure >= self.goal


def show(rows: Sequence[Row], title: str) -> None:
    """Print the figures of one benchmark."""
    table = Table(title=title, title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("what")
    for head in ("figure", "goal"):
        table.add_column(head, justify="right")
    table.add_column("")
    table.add_column("ratio", justify="right")
    table.add_column("yardstick")
    for row in rows:
        sign = "<=" if row.better == "lower" else ">="
        table.add_row(
            row.what,
            f"{row.figure:,.4g} {row.unit}",
            "" if row.goal is None else f"{sign} {row.goal:,.4g} {row.unit}",
            {True: "[green]met", False: "[red]missed", None: ""}[row.is_met],
            "" if row.ratio is None else f"{row.ratio:.3g}",
            row.yardstick,
        )
    Console().print(table)
