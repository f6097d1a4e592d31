"""Parts are found by their file, and a wrong name is answered helpfully."""

from pathlib import Path

import pytest

from voda.domain.errors import InvalidInput
from voda.domain.plugins import Catalogue, chosen
from voda.placement import PLACERS, Placer

_PART = """
class {cls}:
    name = {name!r}

    def place(self) -> None: ...
"""


def a_package(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> Catalogue[Placer]:
    """Return the catalogue of a package of its own, with these files."""
    package = folder / f"parts_{len(files)}"
    package.mkdir()
    for name, text in {"__init__": "", **files}.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    return Catalogue(package.name, method="place", noun="part")


def test_catalogue_when_searched_then_protocols_and_imports_are_left_out() -> None:
    assert all(type(part).__module__ == f"voda.placement.{name}" for name, part in PLACERS.items())
    assert list(PLACERS) == sorted(PLACERS)


def test_catalogue_when_two_files_define_the_same_name_then_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"one": _PART.format(cls="One", name="same"), "two": _PART.format(cls="Two", name="same")}
    with pytest.raises(ValueError, match=r"two: the name 'same' is taken by parts_2\.one"):
        len(a_package(tmp_path, monkeypatch, **files))


def test_catalogue_when_a_file_is_added_then_it_is_found_after_the_next_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = a_package(tmp_path, monkeypatch, one=_PART.format(cls="One", name="one"))
    assert list(catalogue) == ["one"]
    (tmp_path / "parts_1" / "a.py").write_text(_PART.format(cls="A", name="two"), encoding="utf-8")
    catalogue.search_again()
    assert list(catalogue) == ["one", "two"]


def test_chosen_when_the_name_is_wrong_then_the_closest_one_is_offered() -> None:
    with pytest.raises(InvalidInput, match=r"policy 'fifi' is not known. Did you mean 'fifo'\? Known: fifo, srjf."):
        chosen("fifi", {"fifo": 1, "srjf": 2}, what="policy")


def test_chosen_when_nothing_is_close_then_all_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"policy 'xyz' is not known. Known: fifo."):
        chosen("xyz", {"fifo": 1}, what="policy")
