"""Which folders go: the old ones, and the oldest of the user who takes too much."""

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from voda.application.folder_retention import SPARED_S, EndedFolder, RetentionRule, expired

DAY_S = 86_400.0
NOW = 100 * DAY_S


def a_folder(job_id: str, *, days: float, size_bytes: int = 10, user: str = "ada") -> EndedFolder:
    return EndedFolder(job_id=job_id, user=user, pool="default", finished_at=NOW - days * DAY_S, size_bytes=size_bytes)


def goes(folders: Sequence[EndedFolder], rule: RetentionRule) -> list[tuple[str, str]]:
    return [(folder.job_id, cause) for folder, cause in expired(folders, rule, NOW)]


def test_folders_when_older_than_kept_go_oldest_first() -> None:
    folders = [a_folder("c", days=29), a_folder("b", days=30), a_folder("a", days=40)]
    assert goes(folders, RetentionRule()) == [("a", "age"), ("b", "age")]


def test_folders_when_they_take_too_much_the_oldest_go_until_the_rest_fits() -> None:
    folders = [a_folder("c", days=2), a_folder("b", days=3), a_folder("a", days=4)]
    assert goes(folders, RetentionRule(keep_bytes=15)) == [("a", "size"), ("b", "size")]
    assert goes(folders, RetentionRule(keep_bytes=20)) == [("a", "size")]


def test_folder_when_its_job_ended_today_is_spared_whatever_its_size() -> None:
    large = a_folder("large", days=0.5, size_bytes=10**12)
    assert goes([large, a_folder("old", days=2)], RetentionRule()) == []
    assert goes([large], RetentionRule(spared_s=0)) == [("large", "size")]


def test_folder_of_more_files_than_can_be_counted_exceeds_any_size() -> None:
    uncounted = msgspec.structs.replace(a_folder("uncounted", days=2), exceeds=True)
    other = a_folder("other", days=3)
    assert goes([uncounted, other], RetentionRule()) == [("uncounted", "size")]
    assert goes([uncounted, other], RetentionRule(keep_bytes=0)) == []
    assert goes([msgspec.structs.replace(uncounted, finished_at=NOW)], RetentionRule()) == []


def test_folders_without_limits_all_stay() -> None:
    folders = [a_folder("a", days=90, size_bytes=10**15)]
    assert goes(folders, RetentionRule(keep_s=0, keep_bytes=0)) == []


def test_folders_when_they_take_too_much_go_from_the_user_who_takes_the_most() -> None:
    folders = [
        a_folder("small", days=9, user="bob"),
        a_folder("second", days=3, size_bytes=40),
        a_folder("first", days=4, size_bytes=40),
    ]
    assert goes(folders, RetentionRule(keep_bytes=80)) == [("first", "size")]
    assert goes(folders, RetentionRule(keep_bytes=20)) == [("first", "size"), ("second", "size")]


_FOLDERS = st.lists(st.tuples(st.floats(0, 60), st.integers(0, 100), st.sampled_from("abc")), max_size=12)


def _drawn_folders(drawn: list[tuple[float, int, str]]) -> list[EndedFolder]:
    return [
        a_folder(f"j{number}", days=days, size_bytes=size, user=user) for number, (days, size, user) in enumerate(drawn)
    ]


@given(drawn=_FOLDERS, keep_bytes=st.integers(1, 300))
def test_folders_of_a_user_under_an_equal_share_when_others_exceed_theirs_all_stay(
    drawn: list[tuple[float, int, str]], keep_bytes: int
) -> None:
    folders = _drawn_folders(drawn)
    unspared = [folder for folder in folders if NOW - folder.finished_at >= SPARED_S]
    took = {one.user: sum(each.size_bytes for each in unspared if each.user == one.user) for one in unspared}
    losers = {one.user for one, _ in expired(folders, RetentionRule(keep_s=0, keep_bytes=keep_bytes), NOW)}
    assert all(took[user] * len(took) > keep_bytes for user in losers)


@given(drawn=_FOLDERS, keep_bytes=st.integers(0, 300), keep_days=st.integers(0, 40))
def test_folders_when_drawn_what_stays_is_within_the_limits(
    drawn: list[tuple[float, int, str]], keep_bytes: int, keep_days: int
) -> None:
    folders = _drawn_folders(drawn)
    rule = RetentionRule(keep_s=keep_days * DAY_S, keep_bytes=keep_bytes)
    gone = {folder.job_id for folder, _ in expired(folders, rule, NOW)}
    stays = [folder for folder in folders if folder.job_id not in gone]
    assert all(not rule.keep_s or NOW - folder.finished_at < rule.keep_s for folder in stays)
    unspared = [folder for folder in stays if NOW - folder.finished_at >= SPARED_S]
    assert not keep_bytes or sum(folder.size_bytes for folder in unspared) <= keep_bytes
    # What is decided again after it was done is nothing.
    assert expired(stays, rule, NOW) == []


def test_rule_unless_it_is_set_keeps_30_days_and_20_gb_and_spares_a_day() -> None:
    just_too_much = 20_000_000_001
    assert goes([a_folder("a", days=29.99), a_folder("b", days=30)], RetentionRule()) == [("b", "age")]
    assert goes([a_folder("a", days=2, size_bytes=just_too_much - 1)], RetentionRule()) == []
    assert goes([a_folder("a", days=2, size_bytes=just_too_much)], RetentionRule()) == [("a", "size")]
    assert goes([a_folder("a", days=1, size_bytes=just_too_much)], RetentionRule()) == [("a", "size")]
    almost_a_day = 1 - 1 / DAY_S
    assert goes([a_folder("a", days=almost_a_day, size_bytes=just_too_much)], RetentionRule()) == []
