"""What is printed for people, where no terminal shows it."""

import pytest
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from voda.cli.render.terminal import show


def test_text_when_the_output_is_a_pipe_is_neither_wrapped_nor_filled_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row("why", "word " * 60)
    table.add_row("and", "short")
    show(Group(table, Padding(Text("indented", style="bold"), (0, 0, 0, 2))))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"why  {'word ' * 59}word", "and  short", "  indented"]
