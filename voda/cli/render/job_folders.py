"""The folders of ended jobs that are to be deleted, as a table."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rich.text import Text

from voda.cli.render.job_text import NONE
from voda.cli.render.tables import Column, table
from voda.cli.render.terminal import plain
from voda.text import counted, since, size
from voda.wire.housekeeping import KeptFolderList, KeptFolderView

_COLUMNS: Final = (
    Column(head="JOB", cut=1, least=20),
    Column(head="USER", cut=2, least=8),
    Column(head="ENDED", right=True),
    Column(head="SIZE", right=True),
    Column(head="BECAUSE OF"),
)


def folders_table(
    kept: KeptFolderList, goes: Sequence[KeptFolderView], at: datetime, *, width: int | None
) -> list[Text]:
    """Return a line for each folder that goes, heads first, and what stays."""
    stays = (
        f"{counted(len(kept.items) - len(goes), 'folder')} of ended jobs, {size(kept.total_bytes - kept.goes_bytes)}"
    )
    if not goes:
        return [] if kept.note else [Text(f"nothing to delete: {stays}")]
    rows = [
        [
            plain(one.job_id),
            plain(one.user) or NONE,
            f"{since(one.finished_at, at)} ago",
            f"{'>' if one.exceeds else ''}{size(one.size_bytes)}",
            one.goes,
        ]
        for one in goes
    ]
    return [*table(_COLUMNS, rows, width=width), Text(f"{size(kept.goes_bytes)} go; what stays: {stays}", style="dim")]
