"""Claims about finding public data sets."""

from pathlib import Path

import pytest

from voda.domain.errors import DataNotFound, InvalidInput
from voda.simulator.data import PHILLY, POLLUX, VODA_EXP, DataSet, find_folder, intact


@pytest.fixture(autouse=True)
def _nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "checkout"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.delenv("VODA_DATA", raising=False)


def _put(folder: Path, data_set: DataSet = POLLUX) -> Path:
    marker = folder / data_set.marker[0]
    marker.parent.mkdir(parents=True)
    marker.touch()
    return folder


@pytest.mark.parametrize("layout", POLLUX.folders)
def test_data_set_when_in_any_known_layout_is_found(tmp_path: Path, layout: str) -> None:
    folder = _put(tmp_path / "given" / layout)
    assert find_folder(POLLUX, tmp_path / "given").resolve() == folder.resolve()


def test_data_folder_when_several_exist_is_the_option_then_the_variable_then_data_then_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = _put(tmp_path / "shared/data/voda-exp", VODA_EXP)
    assert find_folder(VODA_EXP).resolve() == shared
    near = _put(tmp_path / "checkout/data/voda-exp", VODA_EXP)
    assert find_folder(VODA_EXP).resolve() == near
    named = _put(tmp_path / "named/voda-exp", VODA_EXP)
    monkeypatch.setenv("VODA_DATA", str(tmp_path / "named"))
    assert find_folder(VODA_EXP) == named
    given = _put(tmp_path / "given/voda-exp", VODA_EXP)
    assert find_folder(VODA_EXP, tmp_path / "given") == given


def test_data_set_when_absent_from_the_named_folder_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    _put(tmp_path / "checkout/data/voda-exp", VODA_EXP)
    with pytest.raises(DataNotFound):
        find_folder(VODA_EXP, tmp_path / "empty")


@pytest.mark.parametrize(
    ("data_set", "source"),
    [
        (POLLUX, "github.com/petuum/adaptdl, branch osdi21-artifact, path simulator/"),
        (PHILLY, "github.com/msr-fiddle/philly-traces"),
        (VODA_EXP, "github.com/heyfey/vodascheduler, branch exp, path exp/"),
    ],
)
def test_data_set_when_absent_says_in_one_line_where_to_get_it_and_where_to_put_it(
    data_set: DataSet, source: str
) -> None:
    with pytest.raises(DataNotFound) as absent:
        find_folder(data_set)
    message = str(absent.value)
    assert source in message
    assert f"put it at data/{data_set.folders[0]}" in message
    assert "\n" not in message


def test_damaged_file_when_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="damaged"), intact(tmp_path / "x.csv", POLLUX):
        int("none")
