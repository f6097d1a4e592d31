"""What changed since a count."""

from voda.changed_keys import ChangedKeys


def test_keys_that_changed_since_a_count_are_told_once_each_the_latest_first() -> None:
    changes = ChangedKeys()
    for key in "abca":
        changes.add(key)
    assert (changes.count, changes.since(0), changes.since(2), changes.since(4)) == (4, ["a", "c", "b"], ["a", "c"], [])
