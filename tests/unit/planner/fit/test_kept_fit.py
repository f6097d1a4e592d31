"""What is kept between decisions of what nodes take changes no decision, whatever changes meanwhile."""

from collections.abc import Callable, Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.unit.planner.fit.test_draws import a_drawn_node, drawn_needs
from voda.domain.job import Job
from voda.domain.node import Node, PodNeeds, Requirement, Taint
from voda.domain.reasons.nodes import Cordoned, Said
from voda.domain.state import ClusterState
from voda.placement import PLACERS
from voda.planner.decide import decide
from voda.planner.fit.node_fit import NodeFit, with_fit
from voda.planner.fit.node_rules import KubernetesRules
from voda.planner.registries import all_wings
from voda.policies import POLICIES


def test_pool_that_was_forgotten_is_decided_about_as_before() -> None:
    rules, view = (
        KubernetesRules(),
        a_state(
            jobs=[a_job("a", needs=PodNeeds(selector={"zone": "a"}))],
            nodes=[a_node("n1"), a_node("n2", labels={"zone": "a"})],
        ),
    )
    for number in range(200):
        rules.shown(replace(view, pool=f"pool-{number}"))
    assert len(rules._pools) < 100
    again = rules.shown(replace(view, pool="pool-0"))
    assert again.jobs["a"].refusals.keys() == {"n1"}


class DrawnPool:
    """Nodes, jobs and others' pods that change at random."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}
        self._count = 0

    @property
    def view(self) -> ClusterState:
        placement = {job_id: tuple(job.workers.values()) for job_id, job in self.jobs.items() if job.workers}
        return a_state(jobs=self.jobs.values(), nodes=self.nodes.values(), placement=placement)

    def join(self, random: Random) -> None:
        name = f"n{random.randrange(6)}"
        self.nodes[name] = a_drawn_node(random, name)
        if random.random() < 0.2:
            self.nodes[name] = replace(self.nodes[name], room=None)

    def leave(self, random: Random) -> None:
        if self.nodes:
            del self.nodes[random.choice([*self.nodes])]

    def rejoin(self, random: Random) -> None:
        """Let a node come last."""
        if self.nodes:
            name = random.choice([*self.nodes])
            self.nodes[name] = self.nodes.pop(name)

    def cordon(self, random: Random) -> None:
        self._change_node(random, lambda node: replace(node, is_schedulable=not node.is_schedulable))

    def relabel(self, random: Random) -> None:
        self._change_node(random, lambda node: replace(node, labels={**node.labels, "zone": random.choice("abc")}))

    def taint(self, random: Random) -> None:
        taint = Taint(key="dedicated", value="vision", effect=random.choice(("NoSchedule", "NoExecute")))
        self._change_node(random, lambda node: replace(node, taints=random.choice(((), (taint,)))))

    def pods_of_others(self, random: Random) -> None:
        room = {"cpu": random.randrange(70) * 1_000, "pods": random.randrange(8) * 1_000}
        foreign = random.randrange(5)
        self._change_node(
            random, lambda node: replace(node, room=node.room and {**node.room, **room}, foreign_gpus=foreign)
        )

    def seen_again(self, random: Random) -> None:
        self._change_node(random, replace)

    def submit(self, random: Random) -> None:
        self._count += 1
        needs = drawn_needs(random)
        if needs is not None and random.random() < 0.1:
            needs = replace(needs, selector={"team": "x", "shelf": "a"})
        if needs is not None and random.random() < 0.1:
            name = Requirement(key="metadata.name", values=(f"n{random.randrange(6)}",))
            needs = replace(needs, terms=tuple(replace(term, fields=(name,)) for term in needs.terms or ()))
        if needs is not None and random.random() < 0.3:
            # Equal needs, said in another order.
            needs = PodNeeds(requests=dict(sorted(needs.requests.items(), reverse=True)), selector=needs.selector)
        job = a_job(
            f"j{self._count}",
            min_replicas=random.choice((1, 1, 2)),
            max_replicas=random.choice((2, 4, 16)),
            gpus_per_replica=random.choice((0, 1, 1, 1, 2)),
            needs=needs,
            submitted_at=float(self._count),
        )
        self.jobs[job.spec.job_id] = job

    def end(self, random: Random) -> None:
        if self.jobs:
            del self.jobs[random.choice([*self.jobs])]

    def cancel(self, random: Random) -> None:
        self._change_job(random, lambda job: replace(job, is_canceling=True))

    def start(self, random: Random) -> None:
        """Let workers of a job be at work somewhere, whether they fit or not."""
        nodes = random.choices([*self.nodes], k=random.randrange(3)) if self.nodes else []
        self._change_job(random, lambda job: replace(job, workers=dict(enumerate(nodes))))

    def report(self, random: Random) -> None:
        name = f"n{random.randrange(6)}"
        fits = random.choice(({}, {name: 1}))
        self._change_job(random, lambda job: replace(job, refusals={name: Said(text="full")}, fits=fits))

    def report_of_all(self, random: Random) -> None:
        """Let a node refuse jobs by one and the same mapping."""
        refusals = {f"n{random.randrange(6)}": Cordoned()}
        self.jobs = {job_id: replace(job, refusals=refusals, fits={}) for job_id, job in self.jobs.items()}

    def _change_node(self, random: Random, change: Callable[[Node], Node]) -> None:
        if self.nodes:
            name = random.choice([*self.nodes])
            self.nodes[name] = change(self.nodes[name])

    def _change_job(self, random: Random, change: Callable[[Job], Job]) -> None:
        if self.jobs:
            job_id = random.choice([*self.jobs])
            self.jobs[job_id] = change(self.jobs[job_id])


Step = tuple[Callable[[DrawnPool, Random], None], int]
"""A change, and the seed of what it draws."""
CHANGES = (
    *(DrawnPool.join, DrawnPool.submit) * 3,
    *(DrawnPool.leave, DrawnPool.cordon, DrawnPool.relabel, DrawnPool.taint, DrawnPool.pods_of_others),
    *(DrawnPool.end, DrawnPool.cancel, DrawnPool.start, DrawnPool.report, DrawnPool.report_of_all),
    *(DrawnPool.seen_again, DrawnPool.rejoin),
)
STEPS = st.lists(
    st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 2**32)), min_size=1, max_size=4),
    min_size=2,
    max_size=14,
)
BEGIN: list[Step] = [(change, seed) for seed in range(8) for change in (DrawnPool.join, DrawnPool.submit)]


def told(view: ClusterState) -> object:
    """Return all that placers may see of it, which jobs share one and the same mapping among it."""
    alike: dict[tuple[int, int], list[str]] = {}
    for job_id, job in view.jobs.items():
        alike.setdefault((id(job.refusals) if job.refusals else 0, id(job.fits) if job.fits else 0), []).append(job_id)
    orders = {job_id: ([*job.refusals], [*job.fits]) for job_id, job in view.jobs.items()}
    return dict(view.jobs), [*view.jobs], orders, [*alike.values()], dict(view.scarce), [*view.scarce]


@given(STEPS)
def test_limits_when_kept_then_they_are_those_found_anew(
    steps: list[list[Step]],
) -> None:
    pool, kept = DrawnPool(), NodeFit()
    for changes in (BEGIN, *steps):
        for change, seed in changes:
            change(pool, Random(seed))
        assert told(kept.shown(pool.view)) == told(with_fit(pool.view))


@given(STEPS)
def test_decisions_when_what_nodes_take_is_kept_then_they_are_those_made_anew(
    steps: list[list[Step]],
) -> None:
    pool, wings = DrawnPool(), all_wings()
    policy, placer = POLICIES.choose("elastic-fifo"), PLACERS.choose("steady")
    for changes in (BEGIN, *steps):
        for change, seed in changes:
            change(pool, Random(seed))
        warm, cold = (
            decide(pool.view, policy, placer, 100.0, cause="tick", wings=each) for each in (wings, all_wings())
        )
        assert warm == cold


def test_limits_when_a_node_changes_then_classes_that_it_does_not_concern_keep_theirs() -> None:
    kept = NodeFit()
    nodes = {name: a_node(name, labels={"zone": name}, room={"cpu": 64_000, "pods": 110_000}) for name in "ab"}
    jobs = [a_job(name, needs=PodNeeds(selector={"zone": name}, requests={"cpu": 1_000})) for name in "ab"]

    def shown() -> Mapping[str, Job]:
        return kept.shown(a_state(jobs=jobs, nodes=nodes.values())).jobs

    before = shown()
    nodes["a"] = replace(nodes["a"], room={"cpu": 63_000, "pods": 110_000})
    assert [shown()[name] is before[name] for name in "ab"] == [True, True]
    nodes["a"] = replace(nodes["a"], labels={"zone": "b"})
    assert [shown()[name] is before[name] for name in "ab"] == [False, False]


def test_limits_when_a_job_of_a_class_changes_then_it_still_has_the_very_same_as_others_that_a_node_refuses_alike() -> (
    None
):
    kept, refusals = NodeFit(), {"b": Cordoned()}
    nodes = [a_node("a", labels={"zone": "a"}), a_node("b"), a_node("c")]
    needs = PodNeeds(selector={"zone": "a"})
    jobs = {name: replace(a_job(name, needs=needs), refusals=refusals) for name in ("one", "other")}
    for workers in ({}, {0: "a"}):
        jobs["one"] = replace(jobs["one"], workers=workers)
        shown = kept.shown(a_state(jobs=jobs.values(), nodes=nodes)).jobs
        assert [*shown["one"].refusals] == ["b", "c"]
        assert shown["one"].refusals is shown["other"].refusals
