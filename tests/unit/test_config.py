"""Claims about what is read from the environment."""

from pathlib import Path

import pytest

from voda import config


def test_data_folder_when_set_is_that_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VODA_DATA", "/some/where")
    assert config.data_folder() == Path("/some/where")


@pytest.mark.parametrize("empty", ["", "  "])
def test_data_folder_when_empty_is_none(monkeypatch: pytest.MonkeyPatch, empty: str) -> None:
    monkeypatch.setenv("VODA_DATA", empty)
    assert config.data_folder() is None
