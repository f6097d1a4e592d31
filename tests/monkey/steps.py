"""What a random user, a random administrator and chance do to a cluster, drawn from a seed.

Rule: pure; a seed gives the same steps whatever came of them, for they are drawn from what was asked for, not from what
the cluster shows. A step whose target is not there any more does nothing.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from voda.domain.job import Phase

NODES: Final = 4
GPUS: Final = 4
"""Of each node."""
MOST_JOBS: Final = 7
_MOST_FOREIGN: Final = 3
KINDS: Final = ("MPIJob", "PyTorchJob", "Job", "JobSet", "TrainJob")
PARTS: Final = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("mpi-operator", "training-operator", "jobset", "trainer", "kwok"),
)
QUOTA: Final = "quota"
SEEDS: Final = (7337, 5579)
"""Of `make e2e`: together their first 60 steps have every kind, every act and every part."""


@dataclass(frozen=True)
class JobShape:
    """A job as its user writes it; rigid where `least` is `most`."""

    kind: str
    least: int
    most: int
    gpus: int
    priority: int


@dataclass(frozen=True)
class Step:
    """One thing that happens."""

    act: str
    """Name of the method of `hands.Hands` that does it."""
    target: str = ""
    """Of a job, node, foreign pod or part."""
    number: int = 0
    """Which worker or how many: see the method."""
    shape: JobShape | None = None
    """Of a job that is submitted."""

    def __str__(self) -> str:
        return " ".join(str(part) for part in (self.act, self.target, self.number or "", self.shape or "") if part)


ENDS: Final = {"finish": Phase.COMPLETED, "fail": Phase.FAILED, "delete_job": Phase.CANCELED}
"""Act -> how it may end a job."""


@dataclass
class Model:
    """What is believed to be there: a job may have ended meanwhile, a pod may never have come."""

    jobs: list[str] = field(default_factory=list)
    """That nobody ended yet."""
    foreign: list[str] = field(default_factory=list)
    cordoned: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    """Their kubelets are dead."""
    removed: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    """They say no GPUs."""
    tainted: set[str] = field(default_factory=set)
    """A GPU of theirs is taken out."""
    has_quota: bool = False
    submitted: int = 0

    @property
    def present(self) -> Sequence[str]:
        """The nodes that are there."""
        return [node for node in node_names() if node not in self.removed]

    @property
    def silent(self) -> set[str]:
        """Those of which voda sees no GPUs."""
        return self.lost | self.hidden

    def take(self, step: Step) -> None:
        """Change what is believed as a step does."""
        match step.act:
            case "submit":
                self.submitted += 1
                self.jobs.append(step.target)
            case "finish" | "delete_job":
                self.jobs.remove(step.target)
            case "bring_foreign":
                self.submitted += 1
                self.foreign.append(step.target)
            case "end_foreign":
                self.foreign.remove(step.target)
            case "cordon" | "drain":
                self.cordoned.add(step.target)
            case "uncordon":
                self.cordoned.discard(step.target)
            case "lose_node":
                self.lost.add(step.target)
            case "restore_node":
                self.lost.discard(step.target)
            case "hide_gpus":
                self.hidden.add(step.target)
            case "show_gpus":
                self.hidden.discard(step.target)
            case "taint":
                self.tainted.add(step.target)
            case "untaint":
                self.tainted.discard(step.target)
            case "forbid" | "allow":
                self.has_quota = step.act == "forbid"
            case "remove_node":
                self.removed.add(step.target)
                for nodes in (self.lost, self.cordoned, self.hidden, self.tainted):
                    nodes.discard(step.target)
            case "add_node":
                self.removed.discard(step.target)


def node_names() -> Sequence[str]:
    """Return the names of all nodes that ever are."""
    return [f"gpu-{index}" for index in range(NODES)]


def steps(seed: int) -> Iterator[Step]:
    """Yield what happens with a seed, for ever."""
    chance, model = random.Random(seed), Model()
    while True:
        step = draw(chance, model)
        model.take(step)
        yield step


def draw(chance: random.Random, model: Model) -> Step:
    """Draw the next step among those that make sense."""
    acts = [(weight, act, targets) for weight, act, find in _ACTS if (targets := find(model))]
    [(_, act, targets)] = chance.choices(acts, [weight for weight, _, _ in acts])
    target, number = chance.choice(targets), chance.randrange(8)
    return Step(act, target, number, _a_shape(chance) if act == "submit" else None)


def _a_shape(chance: random.Random) -> JobShape:
    least, gpus = chance.randint(1, 3), chance.choice((1, 1, 1, 2))
    more = chance.choice((0, 1, 3, 5))
    return JobShape(chance.choice(KINDS), least, least + more, gpus, chance.choice((0, 0, 0, 1, 5)))


def _new_job(model: Model) -> Sequence[str]:
    return [f"job-{model.submitted}"] if len(model.jobs) < MOST_JOBS else []


def _new_foreign(model: Model) -> Sequence[str]:
    return [f"foreign-{model.submitted}"] if len(model.foreign) < _MOST_FOREIGN else []


def _jobs(model: Model) -> Sequence[str]:
    return model.jobs


def _loseable(model: Model) -> Sequence[str]:
    # Where most nodes are silent at once, nothing is moved for it; and then there is little to see.
    most = len(model.present) // 2
    return [node for node in model.present if node not in model.silent] if len(model.silent) < most else []


def _removable(model: Model) -> Sequence[str]:
    most = (len(model.present) - 1) // 2
    return model.present if len(model.present) > 2 and len(model.silent) <= most else []


_ACTS: Final[Sequence[tuple[int, str, Callable[[Model], Sequence[str]]]]] = (
    (12, "submit", _new_job),
    (4, "finish", _jobs),
    (3, "fail", _jobs),
    (2, "delete_job", _jobs),
    (3, "delete_pod", _jobs),
    (3, "evict", _jobs),
    (3, "resize_by_hand", _jobs),
    (3, "lift_gate", _jobs),
    (3, "suspend_by_hand", _jobs),
    (2, "delete_service", _jobs),
    (2, "cordon", lambda model: [node for node in model.present if node not in model.cordoned]),
    (4, "uncordon", lambda model: [node for node in model.present if node in model.cordoned]),
    (2, "drain", lambda model: [node for node in model.present if node not in model.cordoned]),
    (2, "lose_node", _loseable),
    (4, "restore_node", lambda model: sorted(model.lost)),
    (3, "flap", lambda model: [node for node in model.present if node not in model.silent]),
    (1, "remove_node", _removable),
    (4, "add_node", lambda model: sorted(model.removed)),
    (3, "taint", lambda model: [node for node in model.present if node not in model.tainted]),
    (4, "untaint", lambda model: sorted(model.tainted)),
    (3, "hide_gpus", _loseable),
    (6, "show_gpus", lambda model: sorted(model.hidden)),
    (3, "evict_saving", _jobs),
    (1, "forbid", lambda model: [] if model.has_quota else [QUOTA]),
    (5, "allow", lambda model: [QUOTA] if model.has_quota else []),
    (4, "change_suspended", _jobs),
    (3, "bring_foreign", _new_foreign),
    (4, "end_foreign", lambda model: model.foreign),
    (3, "kill_voda", lambda model: ["voda"]),
    (2, "restart", lambda model: PARTS),
)
