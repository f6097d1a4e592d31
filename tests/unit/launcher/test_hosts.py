"""What a discovery script may print, and which of the hosts a program gets."""

import pytest

from voda.domain.errors import InvalidInput
from voda.launcher.hosts import Layout, allocate_slots, are_local, parse_hosts


def parsed(text: str, slots_per_host: int = 1) -> dict[str, int]:
    return dict(parse_hosts(text, slots_per_host=slots_per_host, source="hosts.sh"))


def test_hosts_when_listed_in_any_known_form_have_their_slots() -> None:
    text = "a-worker-0.a.default.svc\n\n  b:2 \nc slots=3\n# none\nd:4 # four\na-worker-0.a.default.svc\n"
    assert parsed(text, 2) == {"a-worker-0.a.default.svc": 4, "b": 2, "c": 3, "d": 4}


def test_hosts_when_none_are_listed_are_none() -> None:
    assert parsed("\n  \n") == {}
    assert parsed("a:0\n") == {}


@pytest.mark.parametrize(
    "line", ["-oProxyCommand=x", "a b c", "a:-1", "a:x", "<html>", "a;b", "\x00\x01", "über:1", "a:99999999", ":3"]
)
def test_hosts_when_a_line_is_garbage_are_refused_with_the_line(line: str) -> None:
    with pytest.raises(InvalidInput, match=r"line 2 of what hosts\.sh printed is .*expected a host"):
        parsed(f"good:1\n{line}\n")


def test_allotment_when_there_is_more_than_allowed_takes_the_first() -> None:
    assert allocate_slots(Layout(slots={"a": 2, "b": 2}), 3, None).slots == {"a": 2, "b": 1}


def test_allotment_when_a_host_comes_that_is_not_needed_stays_as_it_is() -> None:
    used = Layout(slots={"b": 1, "c": 1})
    assert allocate_slots(Layout(slots={"a": 1, "b": 1, "c": 1}), 2, used) is used


def test_allotment_when_only_the_order_changes_stays_as_it_is() -> None:
    used = Layout(slots={"b": 1, "a": 1})
    assert allocate_slots(Layout(slots={"a": 1, "b": 1}), 8, used) is used


def test_allotment_when_a_host_goes_is_filled_up_with_another() -> None:
    assert allocate_slots(Layout(slots={"a": 1, "c": 1}), 2, Layout(slots={"b": 1, "c": 1})).slots == {"c": 1, "a": 1}


def test_allotment_when_devices_change_is_another() -> None:
    used = Layout(slots={"localhost": 2}, devices="0,1")
    assert allocate_slots(Layout(slots={"localhost": 2}, devices="2,3"), 2, used) != used


def test_layout_when_shown_is_short() -> None:
    assert str(Layout(slots={"a": 1, "b": 2})) == "3 on a:1 b:2"
    assert str(Layout(slots={f"n{i}": 1 for i in range(20)})).endswith("n7:1 and 12 more hosts")


def test_hosts_when_they_are_this_machine_are_local() -> None:
    assert are_local(["localhost", "me"], {"me"})
    assert not are_local(["localhost", "other"], {"me"})
