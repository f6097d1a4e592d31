"""What is special about `packed`: it packs anew, and keeps in place what that packing allows."""

from tests.builders import a_job, a_node, a_state
from voda.domain.plan import Placement
from voda.placement.packed import Packed


def placed(placement: Placement, replicas: dict[str, int], *sizes: int) -> Placement:
    nodes = [a_node(f"n{index}", gpus=gpus) for index, gpus in enumerate(sizes, start=1)]
    jobs = [a_job(job_id, max_replicas=8) for job_id in replicas]
    return Packed().place(a_state(jobs=jobs, nodes=nodes, placement=placement), replicas, 0.0)


def test_packed_when_jobs_could_share_a_node_then_they_are_moved_together() -> None:
    assert placed({"a": ("n1",), "b": ("n2",)}, {"a": 1, "b": 1}, 4, 4) == {"a": ("n1",), "b": ("n1",)}


def test_packed_when_copies_are_mapped_then_the_most_workers_stay() -> None:
    in_force: Placement = {"a": ("n2",) * 3, "b": ("n1",) * 2}
    assert placed(in_force, {"a": 3, "b": 2}, 4, 4) == in_force


def test_packed_when_nodes_differ_in_size_then_a_copy_maps_to_its_own_size() -> None:
    assert placed({"a": ("n1",) * 2}, {"a": 4}, 2, 4, 2) == {"a": ("n2",) * 4}


def test_packed_when_a_job_fits_no_node_then_it_fills_the_emptiest_and_goes_on() -> None:
    answer = placed({}, {"a": 6}, 2, 4, 2)
    assert answer == {"a": ("n2",) * 4 + ("n1",) * 2}


def test_packed_when_workers_stay_then_they_keep_their_index() -> None:
    in_force: Placement = {"a": ("n2", "n1", "n1", "n1", "n1")}
    assert placed(in_force, {"a": 6}, 4, 4) == {"a": ("n2", "n1", "n1", "n1", "n1", "n2")}
