"""What changed since a count, and between two mappings."""

from voda.changed_keys import ChangedKeys, gone_keys, other_keys


def test_keys_that_changed_since_a_count_are_told_once_each_the_latest_first() -> None:
    changes = ChangedKeys()
    for key in "abca":
        changes.add(key)
    assert (changes.count, changes.since(0), changes.since(2), changes.since(4)) == (4, ["a", "c", "b"], ["a", "c"], [])


def test_keys_of_two_mappings_that_differ_are_those_of_other_objects_and_those_that_are_gone() -> None:
    old = {"same": (1,), "other": (2,), "gone": (3,)}
    new = {"added": (4,), "other": (5,), "same": old["same"]}
    others = other_keys(old, new)
    assert (others, gone_keys(old, new, others)) == (["added", "other"], ["gone"])
    assert gone_keys(new, new, other_keys(new, new)) == []


def test_of_keys_that_changed_long_ago_nothing_is_remembered_and_whoever_asks_for_them_is_told_so() -> None:
    changes = ChangedKeys(remembered=2)
    for key in "abcb":
        changes.add(key)
    assert (changes.since(0), changes.since(1), changes.since(3)) == (None, ["b", "c"], ["b"])
