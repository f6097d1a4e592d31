"""What the name of an array means, to whom."""

from typing import Any

from tests.builders import a_spec
from voda.domain.job_array import ArrayTask
from voda.projections.jobs.names import ArrayIndex
from voda.projections.jobs.record import JobRecord, new_record


def a_task(array_id: str, *, user: str, indices: str = "0", **fields: Any) -> JobRecord:
    task = ArrayTask(array_id=array_id, name="sweep", index=0, indices=indices)
    return new_record(a_spec(array_id, array=task, user=user, **fields), 0.0, 1)


def test_name_of_an_array_means_the_users_own_latest_one_else_anybodys_latest() -> None:
    arrays = ArrayIndex()
    for array_id, user in (("sweep-a", "ann"), ("sweep-b", "ann"), ("sweep-c", "bob")):
        arrays.add(a_task(array_id, user=user))
    assert [arrays.find("sweep", user) for user in ("ann", "bob", "eve", None)] == [
        "sweep-b",
        "sweep-c",
        "sweep-c",
        "sweep-c",
    ]
    assert [arrays.latest_of("sweep", user) for user in ("ann", "eve", None)] == ["sweep-b", None, None]
    assert [arrays.find(named) for named in ("ann/sweep", "eve/sweep", "@sweep-a", "other")] == [
        "sweep-b",
        None,
        "sweep-a",
        None,
    ]
    assert list(arrays.users_of("sweep")) == ["ann", "bob"]


def test_name_of_an_array_with_indices_means_the_latest_array_that_has_them() -> None:
    arrays = ArrayIndex()
    for array_id, user, indices in (
        ("sweep-a", "ann", "0-9"),
        ("sweep-b", "ann", "0-9"),
        ("sweep-c", "ann", "0,2"),
        ("sweep-d", "bob", "0-9"),
    ):
        arrays.add(a_task(array_id, user=user, indices=indices))
    assert [arrays.find("sweep[0-9]", user) for user in ("ann", "bob", "eve")] == ["sweep-b", "sweep-d", "sweep-d"]
    named = ("sweep[0,2]", "bob/sweep[0-9]", "bob/sweep[0,2]", "sweep[0-8]", "other[0-9]")
    assert [arrays.find(name) for name in named] == ["sweep-c", "sweep-d", None, None, None]


def test_array_in_a_namespace_has_its_name_there() -> None:
    arrays = ArrayIndex()
    arrays.add(a_task("lab_sweep", user="ann", namespace="lab"))
    assert (arrays.find("sweep"), arrays.find("lab_sweep", "ann")) == (None, "lab_sweep")


def test_array_is_live_while_one_of_its_tasks_is_and_gone_once_all_are_forgotten() -> None:
    arrays, task = ArrayIndex(), a_task("sweep-a", user="ann")
    arrays.add(task)
    assert (arrays.live("sweep"), [one.spec.job_id for one in arrays.tasks("sweep-a")]) == ("sweep-a", ["sweep-a"])
    task.finished_at = 5.0
    assert (arrays.live("sweep"), arrays.find("sweep")) == (None, "sweep-a")
    arrays.forget(task)
    arrays.forget(task)
    assert (arrays.live("sweep"), arrays.find("sweep"), arrays.tasks("sweep-a")) == (None, None, [])
