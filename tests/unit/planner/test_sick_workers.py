"""The worker whose GPU is sick moves once its grace is over, and no other."""

from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from voda.domain.gpus import Gpus
from voda.domain.job import CONTESTED, CONTESTED_AGAIN, SickGpu
from voda.domain.state import ClusterState
from voda.placement import PLACERS
from voda.planner.decide import decide
from voda.planner.node_states import grace_ends_at
from voda.policies import POLICIES

SINCE = 100.0


def a_view(gpus: int, *, restartable: bool = True) -> ClusterState:
    """Return a job of four on a node, and worker 1 with a sick GPU; another node has a free one."""
    workers = dict.fromkeys(range(4), "n1")
    sick = {1: SickGpu("gpu-1", "Unhealthy", SINCE)}
    job = a_job("a", min_replicas=3, max_replicas=4, workers=workers, sick_gpus=sick, kind="Job")
    job = replace(job, spec=replace(job.spec, is_restartable=restartable), first_started_at=1.0)
    view = a_state(jobs=[job], nodes=[a_node("n1", gpus=gpus), a_node("n2", gpus=1)], placement={"a": ("n1",) * 4})
    return replace(view, silent_since={"n1": SINCE + 1} if gpus < 4 else {})


def placed(view: ClusterState, after_s: float) -> tuple[str, ...]:
    policy, placer = POLICIES.choose("elastic-fifo"), PLACERS.choose("steady")
    return decide(view, policy, placer, now=SINCE + after_s, cause="tick").placement["a"]


def test_sick_worker_stays_for_the_grace_and_moves_then_alone() -> None:
    view = a_view(gpus=3)
    assert grace_ends_at(view, SINCE + 1) == SINCE + view.settings.node_grace_s
    assert placed(view, view.settings.node_grace_s - 1) == ("n1",) * 4
    assert placed(view, view.settings.node_grace_s) == ("n1", "n2", "n1", "n1")


def test_sick_worker_moves_where_its_node_said_so_first() -> None:
    view = replace(a_view(gpus=3), silent_since={"n1": SINCE - 2})
    assert placed(view, view.settings.node_grace_s - 2) == ("n1", "n2", "n1", "n1")


def test_sick_worker_comes_back_where_its_node_has_another_gpu() -> None:
    assert placed(a_view(gpus=4), 1_000.0) == ("n1",) * 4


def test_worker_that_left_a_contested_gpu_in_vain_stays() -> None:
    for reason, expected in ((CONTESTED, ("n1", "n2", "n1", "n1")), (CONTESTED_AGAIN, ("n1",) * 4)):
        view = a_view(gpus=4)
        nodes = {**view.nodes, "n1": replace(view.nodes["n1"], foreign_gpus=Gpus(1 if reason == CONTESTED else 0))}
        job = replace(view.jobs["a"], sick_gpus={1: SickGpu("gpu-1", reason, SINCE)})
        assert placed(replace(view, nodes=nodes, jobs={"a": job}), 1_000.0) == expected


def test_worker_that_begins_only_once_keeps_its_gpu() -> None:
    assert placed(a_view(gpus=4, restartable=False), 1_000.0) == ("n1",) * 4


def test_job_without_room_elsewhere_shrinks_to_what_is_well() -> None:
    view = a_view(gpus=3)
    assert placed(replace(view, nodes={"n1": view.nodes["n1"]}), 1_000.0) == ("n1",) * 3
