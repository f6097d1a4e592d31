"""What names mean beyond the registry: in other namespaces, and after some of their jobs are forgotten."""

from tests.builders import a_spec
from voda.projections.jobs.names import JobNames


def named(*jobs: tuple[str, str, str]) -> JobNames:
    """Return the names of ended jobs: id, name, namespace."""
    names = JobNames()
    for job_id, name, namespace in jobs:
        names.add(a_spec(job_id, name=name, namespace=namespace, user="ann"), is_live=False)
    return names


def test_name_elsewhere_is_the_latest_job_of_exactly_that_name_in_each_namespace() -> None:
    names = named(
        ("aaa", "aaa", "default"),
        ("train", "train", "default"),
        ("train-2", "train", "default"),
        ("lab_train", "train", "lab"),
        ("strain", "strain", "default"),
        ("zzz", "zzz", "lab"),
    )
    assert names.elsewhere("train") == ["train-2", "lab_train"]
    assert names.elsewhere("nothing") == []


def test_name_when_the_job_of_one_user_is_forgotten_means_that_of_another() -> None:
    names = JobNames()
    of_ann, of_bob = a_spec("train", name="train", user="ann"), a_spec("train-2", name="train", user="bob")
    names.add(of_ann, is_live=False)
    names.add(of_bob, is_live=False)
    names.forget(of_bob)
    assert (names.latest("train"), list(names.users_of("train"))) == ("train", ["ann"])
    names.forget(of_ann)
    assert (names.latest("train"), list(names.users_of("train"))) == (None, [])


def test_name_when_an_older_run_is_forgotten_means_the_newer_one_as_before() -> None:
    names, older = JobNames(), a_spec("train", name="train", user="ann")
    names.add(older, is_live=False)
    names.add(a_spec("train-2", name="train", user="ann"), is_live=False)
    names.forget(older)
    assert (names.latest("train"), names.id_of("ann/train")) == ("train-2", "train-2")
