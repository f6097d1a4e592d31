"""Tables that fit: one line a row, columns side by side, narrowed and then left out in a given order where the
terminal is narrow.

Rule: figures are never cut; on no terminal nothing is cut or left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

_GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column."""

    head: str
    cut: int = 0
    """When it gives way: 1 = first; 0 = never."""
    least: int = 12
    """Cells it keeps when it has given way."""
    right: bool = False
    drop: int = 0
    """When it is left out, if cutting does not do: 1 = first; 0 = never."""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], *, width: int | None) -> list[Text]:
    """Return the lines, heads first.

    Args:
        columns: left to right.
        rows: a cell for each column.
        width: cells of the terminal; None = as wide as it comes.
    """
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    while (widths := widths_of(columns, cells, width)) and not _fits(widths, width):
        least = min((column for column in columns if column.drop), key=lambda column: column.drop, default=None)
        if least is None:
            break
        gone = columns.index(least)
        columns = [column for column in columns if column is not least]
        cells = [[*row[:gone], *row[gone + 1 :]] for row in cells]
    heads = [Text(column.head, style="bold") for column in columns]
    return [_line(columns, row, widths) for row in (heads, *cells)]


def widths_of(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int | None) -> list[int]:
    """Return how wide each column is."""
    widths = [
        max([cell_len(column.head), *(row[index].cell_len for row in rows)]) for index, column in enumerate(columns)
    ]
    if width is None:
        return widths
    excess = _whole(widths) - width
    for index in sorted((index for index, column in enumerate(columns) if column.cut), key=lambda i: columns[i].cut):
        given = min(max(0, excess), max(0, widths[index] - max(columns[index].least, cell_len(columns[index].head))))
        widths[index] -= given
        excess -= given
    return widths


def _whole(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _fits(widths: Sequence[int], width: int | None) -> bool:
    return width is None or _whole(widths) <= width


def _line(columns: Sequence[Column], row: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text(no_wrap=True, overflow="ignore")
    for index, (column, cell, width) in enumerate(zip(columns, row, widths, strict=True)):
        shown = cell.copy()
        shown.truncate(width, overflow="ellipsis")
        missing = " " * (width - shown.cell_len)
        is_last = index == len(columns) - 1
        line.append(missing if column.right else "").append_text(shown)
        line.append("" if is_last or column.right else missing).append("" if is_last else " " * _GAP)
    return line
