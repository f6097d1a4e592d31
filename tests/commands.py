"""The command line, run in the process of a test: what it prints where, and how it exits."""

import sys
from typing import NamedTuple

import pytest

from voda.cli import main


class Said(NamedTuple):
    status: int | str | None
    out: str
    err: str


class Voda:
    """The command line, run in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *arguments: object) -> Said:
        self._monkeypatch.setattr(sys, "argv", ["voda", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capfd.readouterr()
        return Said(ended.value.code or 0, out, err)


@pytest.fixture
def voda(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Voda:
    """The command line."""
    return Voda(monkeypatch, capfd)
