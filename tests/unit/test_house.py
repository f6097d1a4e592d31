"""The house stays findable: one name for one thing, small folders that say what they hold, no giant objects."""

import ast

from tools import house
from tools.imports import imports_of

SAME_NAME = {
    "VodaCallback": "one callback per training library, each imported from its own module",
}
"""Class names that stand in several modules -> why."""
MOST_METHODS = 20
MOST_LINES = 60
"""Of a function, its signature and docstring included; about 10 are usual."""
MOST_LOADED = {"voda.planner.decide": 6_000, "voda.application.submit_job": 14_000}
"""Lines of a centre and of all that it imports: whoever changes it has to trust them."""


def test_class_names_when_two_classes_share_one_are_listed_with_a_reason() -> None:
    assert sorted(house.classes().twice()) == sorted(SAME_NAME)


def test_folders_when_counted_have_at_most_fifteen_modules() -> None:
    assert {name: count for name, count in house.folders().items() if count > house.MOST_MODULES} == {}


def test_objects_when_counted_with_what_they_inherit_have_at_most_twenty_methods() -> None:
    large = {name: count for count, name in house.classes().largest() if count > MOST_METHODS}
    assert large == {}


def test_packages_when_read_say_what_is_in_them() -> None:
    prologues = {name: ast.get_docstring(tree) or "" for name, tree in house.trees().items()}
    assert [name for name, text in prologues.items() if name.endswith("__init__") and len(text.split()) < 5] == []


def test_modules_when_counted_have_at_most_400_lines() -> None:
    assert [path for path in house.sources() if len(path.read_text("utf-8").splitlines()) > 400] == []


def test_functions_when_counted_have_at_most_sixty_lines() -> None:
    assert [name for count, name in house.longest_functions() if count > MOST_LINES] == []


def test_centres_when_loaded_need_few_lines_of_others() -> None:
    assert {name: lines for name in house.CENTRES if (lines := house.lines_loaded(name)) > MOST_LOADED[name]} == {}


def test_imports_when_one_is_in_a_function_or_on_the_way_are_loaded_and_those_for_types_only_close_a_circle() -> None:
    sources = {
        "a.__init__": "from a import open_door",
        "a.open_door": "",
        "a.b": "def f():\n    from c import it",
        "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a.b",
    }
    imports = imports_of({name: ast.parse(source) for name, source in sources.items()})
    assert imports.reach("a.b") == {"a", "a.open_door", "a.b", "c"}
    assert imports.reach("c") == {"c"}
    assert imports.circles() == [["a.b", "c"]]


def test_class_names_when_of_the_same_words_are_one_group_but_for_a_collection_beside_its_record() -> None:
    names = [("x", "CardShare"), ("y", "SharedCards"), ("x", "PodClaim"), ("x", "PodClaims"), ("x", "Job")]
    classes = house.Classes({each: ast.ClassDef(each[1], [], [], [], []) for each in names}, {})
    assert classes.equal_words() == [["CardShare", "SharedCards"]]
