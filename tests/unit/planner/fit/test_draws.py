"""Plans for drawn clusters and jobs keep to labels, taints and resources, against an oracle of kube-scheduler's filters
that shares nothing with the planner.
"""

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from voda.domain.job import Job, JobSpec
from voda.domain.node import Node, NodeTerm, PodNeeds, Requirement, Taint, Toleration
from voda.domain.plan import Plan
from voda.domain.state import ClusterState
from voda.placement import PLACERS
from voda.policies import POLICIES

DRAWS = 60
MOST_PLANS = 6
GPUS, CPUS, GIB = 8, 64, 1 << 30


def a_drawn_node(random: Random, name: str) -> Node:
    labels = {"zone": random.choice("abc"), **({"team": random.choice("xy")} if random.random() < 0.5 else {})}
    taints = [Taint(key="dedicated", value=random.choice(("vision", "speech")))] if random.random() < 0.3 else []
    room = {"cpu": random.choice((16, 48, CPUS)) * 1000, "memory": random.choice((64, 256)) * GIB * 1000}
    room["pods"] = random.choice((3, 20, 110)) * 1000
    return a_node(name, gpus=random.choice((4, GPUS)), labels=labels, taints=tuple(taints), room=room)


def drawn_needs(random: Random) -> PodNeeds | None:
    if random.random() < 0.2:
        return None
    requests = {"cpu": random.choice((0, 1, 8, 20, 100)) * 1000, "memory": random.choice((1, 16, 60)) * GIB * 1000}
    selector = {"zone": random.choice("abc")} if random.random() < 0.3 else {}
    selector |= {"team": random.choice("xy")} if random.random() < 0.2 else {}
    value = random.choice(("vision", "speech"))
    tolerations = (Toleration(key="dedicated", value=value),) if random.random() < 0.4 else ()
    zones = Requirement(key="zone", values=tuple(random.sample("abc", 2)))
    team = Requirement(key="team", operator="NotIn", values=(random.choice("xy"),))
    terms = random.choice((None, None, None, (NodeTerm(labels=(zones,)),), (NodeTerm(labels=(zones, team)),)))
    return PodNeeds(requests=requests, selector=selector, terms=terms, tolerations=tolerations)


def takes(node: Node, spec: JobSpec) -> bool:
    """Say whether an empty node takes a worker: the oracle."""
    needs = spec.needs or PodNeeds()
    tolerated = {(each.key, each.value) for each in needs.tolerations}
    in_zone = all(
        (node.labels.get(each.key) in each.values) == (each.operator == "In")
        for term in needs.terms or ()
        for each in term.labels
    )
    selected = all(node.labels.get(key) == value for key, value in needs.selector.items())
    return in_zone and selected and all((taint.key, taint.value) in tolerated for taint in node.taints)


def asks(spec: JobSpec) -> Mapping[str, int]:
    return {"pods": 1000, **(spec.needs.requests if spec.needs else {})}


def fitting(node: Node, spec: JobSpec, gpus: int, left: Mapping[str, int]) -> int:
    """Return how many workers fit into so many GPUs and what is left."""
    if not takes(node, spec):
        return 0
    most = [left[resource] // amount for resource, amount in asks(spec).items() if amount]
    return max(0, min([gpus // spec.gpus_per_replica, *most]))


class Rest:
    """What jobs leave of the nodes."""

    def __init__(self, view: ClusterState, placement: Mapping[str, tuple[str, ...]]) -> None:
        self.gpus = {name: int(node.gpus) for name, node in view.nodes.items()}
        self.left = {name: dict(node.room or {}) for name, node in view.nodes.items()}
        for job_id, nodes in placement.items():
            for node in nodes:
                self.add(view.jobs[job_id].spec, node, 1)

    def add(self, spec: JobSpec, node: str, workers: int) -> None:
        self.gpus[node] -= workers * spec.gpus_per_replica
        for resource, amount in asks(spec).items():
            self.left[node][resource] -= workers * amount


def drawn_view(seed: int) -> ClusterState:
    """Return nodes, jobs at work on them where they fit, and jobs that wait."""
    random = Random(seed)
    nodes = [a_drawn_node(random, f"n{at}") for at in range(random.randint(2, 6))]
    jobs: dict[str, Job] = {}
    placement: dict[str, tuple[str, ...]] = {}
    for at in range(random.randint(2, 12)):
        least = random.choice((1, 1, 1, 2, 4))
        job = a_job(
            f"j{at}",
            min_replicas=least,
            max_replicas=random.choice((least, least, 2 * least, 16)),
            gpus_per_replica=random.choice((1, 1, 1, 2, 4)),
            priority=random.choice((0, 0, 0, 5)),
            needs=drawn_needs(random),
            submitted_at=float(at),
        )
        jobs[job.spec.job_id] = job
        if random.random() < 0.6:
            rest, placed = Rest(a_state(jobs=jobs.values(), nodes=nodes), placement), list[str]()
            for node in random.sample(nodes, len(nodes)):
                fits = fitting(node, job.spec, rest.gpus[node.name], rest.left[node.name])
                placed += [node.name] * min(fits, job.spec.max_replicas - len(placed))
            if len(placed) >= least:
                placement[job.spec.job_id] = tuple(placed)
                jobs[job.spec.job_id] = replace(job, workers=dict(enumerate(placed)))
    return a_state(jobs=jobs.values(), nodes=nodes, placement=placement)


def impossible(view: ClusterState) -> set[str]:
    """Return the jobs whose minimum the nodes would not take if they were empty."""
    return {
        job_id
        for job_id, job in view.jobs.items()
        if sum(fitting(node, job.spec, node.gpus, node.room or {}) for node in view.nodes.values())
        < job.spec.min_replicas
    }


def could_start(view: ClusterState, plan: Plan, job: Job) -> bool:
    """Say whether a job could have its minimum of what a plan leaves, and of what others have beyond their own."""
    rest = Rest(view, plan.placement)
    mine = [node for node in view.nodes.values() if takes(node, job.spec)]
    names = {node.name for node in mine}
    for other, nodes in plan.placement.items():
        spec = view.jobs[other].spec
        if spec.priority > job.spec.priority:
            continue
        here = [node for node in nodes if node in names]
        for node in here[: max(0, len(nodes) - spec.min_replicas)]:
            rest.add(spec, node, -1)
    return sum(fitting(node, job.spec, rest.gpus[node.name], rest.left[node.name]) for node in mine) >= (
        job.spec.min_replicas
    )


def planned(view: ClusterState, policy: str, placer: str) -> Plan:
    return decide(view, POLICIES.choose(policy), PLACERS.choose(placer), 100.0, cause="tick")


def adopted(view: ClusterState, plan: Plan) -> ClusterState:
    jobs = {
        job_id: replace(job, workers=dict(enumerate(plan.placement.get(job_id, ()))))
        for job_id, job in view.jobs.items()
    }
    return replace(view, jobs=jobs, plan=plan)


def settles(view: ClusterState, policy: str, placer: str) -> bool:
    """Return whether plans come to an end where nothing else happens."""
    for _ in range(MOST_PLANS):
        plan = planned(view, policy, placer)
        if plan.placement == view.plan.placement:
            return True
        view = adopted(view, plan)
    return False


def check(seed: int, policy: str, placer: str) -> list[str]:
    """Return what is wrong with the plan for a drawn cluster."""
    view = drawn_view(seed)
    plan = planned(view, policy, placer)
    wrong = []
    rest = Rest(view, plan.placement)
    for name in view.nodes:
        if rest.gpus[name] < 0 or min(rest.left[name].values()) < 0:
            wrong.append(f"{name} is over its room")
    for job_id, nodes in plan.placement.items():
        spec = view.jobs[job_id].spec
        if not spec.min_replicas <= len(nodes) <= spec.max_replicas:
            wrong.append(f"{job_id} has {len(nodes)} workers")
        wrong += [f"{node} takes no {job_id}" for node in Counter(nodes) if not takes(view.nodes[node], spec)]
    never = impossible(view)
    without = replace(view, jobs={job_id: job for job_id, job in view.jobs.items() if job_id not in never})
    if never and planned(without, policy, placer).placement != plan.placement:
        wrong.append(f"{never} disturb others")
    wrong += [
        f"{job_id} could have its minimum"
        for job_id, job in view.jobs.items()
        if job_id not in plan.placement and could_start(view, plan, job)
    ]
    if not settles(view, policy, placer):
        wrong.append("plans take turns")
    return wrong


@pytest.mark.parametrize("placer", PLACERS)
def test_plans_when_clusters_and_jobs_are_drawn_then_nodes_take_what_is_planned_and_surplus_serves_minimums(
    placer: str,
) -> None:
    assert {seed: wrong for seed in range(DRAWS) if (wrong := check(seed, "elastic-fifo", placer))} == {}
