"""Users: seeded acts through the real API of any replica, with everything that users do when answers are lost.

Rules: what they do is drawn ahead as plain records, so that a story can be told with fewer of them; whoever gets no
answer asks again, a submit with the same key; a user believes nothing but what was answered.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tests.dst.invariants.broken import Broken
from tests.dst.journal import KEY, WHOLE, Answered, Journal, Kind
from tests.dst.world import Answer, Unanswered, World
from voda.domain.rng import rng_at

POLICIES: Final = (
    "elastic-fifo",
    "fifo",
    "elastic-tiresias",
    "tiresias",
    "srjf",
    "ffdl",
    "elastic-srjf",
    "afs-l",
    "elastic-value",
)
PLACERS: Final = ("steady", "packed", "frugal")
CLUSTERS: Final = ("red", "blue")
"""Virtual clusters, where there are some."""
_WITHOUT_GPUS: Final = 0.2
"""Of all seeds: some of their jobs need no GPU."""
_SHARED: Final = 0.5
"""Of the seeds have virtual clusters."""
_PATIENCE: Final = 8
"""Times that a user asks again before he gives up."""
_ASK_AGAIN_S: Final = 4.0
_LATE_S: Final = 1_800.0
"""Until somebody's script sends yesterday's submit again."""
_GPUS: Final = "nvidia.com/gpu"


Manner = Literal["", "twice", "late", "whole"]


class Act(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a user does."""

    at_s: float
    """Virtual seconds since the beginning."""
    kind: Kind
    number: int
    """Of all acts of the seed; whatever identifies the act comes from it."""
    job: str = ""
    """Name of the job it is about."""
    wish: Mapping[str, Any] = {}
    """Of a submit: its manifest's figures; of a change: new bounds; of settings: what shall be different; of virtual
    clusters: name -> cell type -> number."""
    manner: Manner = ""
    """Of a submit: sent to two replicas at once, or once more when it is long done; of a delete: of a whole array."""
    timeout_s: float = 30.0
    """Until the user gives up an answer, and asks again."""


def drawn(
    seed: int, *, until_s: float, pools: Mapping[str, Mapping[str, int]], troubles: Sequence[tuple[float, float]] = ()
) -> tuple[Act, ...]:
    """Return what the users of a seed do, in order.

    Args:
        seed: of the run.
        until_s: after that they only wait for their jobs.
        pools: pool -> node -> GPUs; every job fits into its pool when that is empty and whole.
        troubles: (since, for how long) something is wrong: that is when most is done.
    """
    rng = rng_at(seed, "users")
    instants = sorted(_instants(rng, until_s, troubles))
    acts: list[Act] = []
    names: dict[str, int] = {}
    for number, at_s in enumerate(instants, start=1):
        act = _act(rng_at(seed, f"act {number}"), number, at_s, pools, names)
        if act.kind == "submit":
            # Taken out first, so that it comes last.
            names.pop(act.job, None)
            names[act.job] = act.wish.get("tasks", 0)
        acts.append(act)
    if rng_at(seed, "cpu jobs").random() < _WITHOUT_GPUS:
        acts = _some_without_gpus(seed, acts)
    if rng_at(seed, "virtual clusters").random() < _SHARED:
        return _sharing(seed, acts, until_s)
    return tuple(acts)


def _some_without_gpus(seed: int, acts: Sequence[Act]) -> list[Act]:
    """Return the acts of users, some of whose jobs need no GPU."""
    rng = rng_at(seed, "without gpus")
    needs = [act.kind != "submit" or rng.random() > 0.3 for act in acts]
    return [act if gpus else replace(act, wish={**act.wish, "gpus": 0}) for act, gpus in zip(acts, needs, strict=True)]


def _sharing(seed: int, acts: Sequence[Act], until_s: float) -> tuple[Act, ...]:
    """Return the acts of users who share the pool `big` as virtual clusters, which are changed now and then."""
    rng = rng_at(seed, "sharing")
    shared: list[Act] = []
    for act in acts:
        wish = act.wish
        if act.kind == "submit" and wish["pool"] == "big":
            # The workers of a job are in one chain of cells, here on one node.
            wish = {**wish, "min": min(wish["min"], 8 // max(wish["gpus"], 1))}
            wish |= {"cluster": cluster} if (cluster := rng.choice((*CLUSTERS, ""))) else {}
        shared.append(replace(act, wish=wish))
    at_s, number = rng.uniform(1.0, 60.0), len(acts)
    while at_s < until_s:
        number += 1
        wish = _quotas(rng)
        shared.append(Act(at_s=round(at_s, 3), kind="virtual clusters", number=number, job="big", wish=wish))
        at_s += rng.expovariate(1 / 1_800.0)
    return tuple(sorted(shared, key=lambda act: act.at_s))


def _quotas(rng: Random) -> Mapping[str, Mapping[str, int]]:
    """Return virtual cluster -> cell type -> number: whole nodes, or parts of them."""
    quotas: dict[str, dict[str, int]] = {name: {} for name in CLUSTERS}
    for chain, gpus in (("node-8", 8), ("node-4", 4)):
        if rng.random() < 0.5:
            quotas[rng.choice(CLUSTERS)][chain] = 1
            continue
        first = rng.randint(0, gpus)
        for name, number in zip(CLUSTERS, (first, rng.randint(0, gpus - first)), strict=True):
            quotas[name][f"{chain}.gpu"] = number
    return quotas


def _instants(rng: Random, until_s: float, troubles: Sequence[tuple[float, float]]) -> Iterator[float]:
    pace_s = rng.choice((60.0, 200.0, 600.0))
    at_s = rng.uniform(1.0, 30.0)
    while at_s < until_s:
        yield at_s
        # Several at nearly the same moment are worth more than the same number spread out.
        at_s += rng.expovariate(1 / pace_s) if rng.random() < 0.7 else rng.uniform(0.0, 2.0)
    for since_s, span_s in troubles:
        if rng.random() < 0.5:
            yield since_s + rng.uniform(0.0, min(max(span_s, 1.0), 30.0))


def _act(
    rng: Random, number: int, at_s: float, pools: Mapping[str, Mapping[str, int]], names: Mapping[str, int]
) -> Act:
    """Return one act; `names` are those of the jobs and arrays so far, with the tasks of each array."""
    kinds: tuple[Kind, ...] = ("submit", "submit", "submit", "change", "change", "delete", "settings")
    kind: Kind = rng.choice(kinds) if names else "submit"
    wish: Mapping[str, Any] = {}
    manner: Manner = ""
    if kind == "submit":
        # A name is used again now and then, while its job is live or when it is not.
        job = rng.choice(list(names)) if names and rng.random() < 0.15 else f"job-{number}"
        wish = {**_wish(rng, pools), **_array(rng), **_after(rng, list(names)[-4:])}
        manners: tuple[Manner, ...] = ("", "", "", "twice", "late")
        manner = rng.choice(manners)
    elif kind == "settings":
        job = rng.choice(sorted(pools))
        wish = rng.choice(({"policy": rng.choice(POLICIES)}, {"placer": rng.choice(PLACERS)}, {}, {}))
    else:
        job = rng.choice(list(names)[-3:])
        if tasks := names[job]:
            manner = "whole" if kind == "delete" and rng.random() < 0.5 else ""
            job = job if manner else f"{job}-{rng.randrange(tasks)}"
        if kind == "change" and rng.random() < 0.6:
            wish = {"min_replicas": 1, "max_replicas": rng.randint(1, 4)}
    timeout_s = rng.choice((3.0, 10.0, 30.0))
    return Act(at_s=round(at_s, 3), kind=kind, number=number, job=job, wish=wish, manner=manner, timeout_s=timeout_s)


def _wish(rng: Random, pools: Mapping[str, Mapping[str, int]]) -> Mapping[str, Any]:
    pool = rng.choice(sorted(pools))
    gpus = rng.choice((1, 1, 1, 2))
    slots = sum(node // gpus for node in pools[pool].values())
    most = rng.randint(1, min(slots, 6))
    least = most if rng.random() < 0.3 else rng.randint(1, most)
    return {"pool": pool, "gpus": gpus, "min": least, "max": most, "kind": rng.choice(("MPIJob", "PyTorchJob"))}


def _array(rng: Random) -> Mapping[str, Any]:
    """Return nothing, or the tasks of an array and how many of them may be at work at once."""
    return {"tasks": rng.randint(2, 6), "at_once": rng.randint(1, 3)} if rng.random() < 0.2 else {}


def _after(rng: Random, names: Sequence[str]) -> Mapping[str, Any]:
    """Return nothing, or which jobs and arrays have to end first."""
    if not names or rng.random() >= 0.25:
        return {}
    chosen = rng.sample(names, k=min(len(names), rng.randint(1, 2)))
    return {"after": ",".join(f"{name}{rng.choice(('', ':any'))}" for name in chosen)}


def manifest_of(name: str, key: str, wish: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a job that asks for what was drawn.

    Args:
        name: of the job.
        key: under which it is submitted; kept as a label.
        wish: pool, gpus (of each worker), min, max and kind; tasks and at_once of an array; after.
    """
    container = {"name": "main", "image": "example/train", "command": ["sh", "-c", "train"]}
    worker = {**container, "resources": {"limits": {_GPUS: wish["gpus"]}}}
    notes = {
        "voda.dev/pool": wish["pool"],
        "voda.dev/min-replicas": str(wish["min"]),
        "voda.dev/max-replicas": str(wish["max"]),
    }
    if "tasks" in wish:
        # Short ones: the tasks of an array may run one after the other.
        notes |= {"voda.dev/array": f"0-{wish['tasks'] - 1}%{wish['at_once']}", "voda.dev/epochs": "1"}
    if "cluster" in wish:
        notes["voda.dev/virtual-cluster"] = wish["cluster"]
    if "after" in wish:
        notes["voda.dev/after"] = wish["after"]
    metadata = {"name": name, "labels": {KEY: key}, "annotations": notes}
    workers = {"replicas": wish["min"], "template": {"spec": {"containers": [worker]}}}
    if wish["kind"] == "PyTorchJob":
        trained = {"name": "pytorch", **{k: v for k, v in worker.items() if k != "name"}}
        workers["template"] = {"spec": {"containers": [trained]}}
        spec: dict[str, Any] = {"elasticPolicy": {}, "pytorchReplicaSpecs": {"Worker": workers}}
        return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}
    launcher = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"mpiReplicaSpecs": {"Launcher": launcher, "Worker": workers}}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata, "spec": spec}


class Users:
    """All users of a world, as the load of its run."""

    def __init__(self, acts: Sequence[Act], journal: Journal) -> None:
        self._acts = acts
        self._journal = journal
        self.requests = 0

    async def run(self, world: World) -> None:
        """Do everything in its time, and return when the last answer is in or given up."""
        async with asyncio.TaskGroup() as group:
            for act in self._acts:
                group.create_task(self._act(world, act))

    async def _act(self, world: World, act: Act) -> None:
        await asyncio.sleep(max(0.0, act.at_s - world.now_s))
        match act.kind:
            case "submit":
                await self._submit(world, act)
            case "change":
                await self._once_or_again(world, act, self._change)
            case "delete":
                await self._once_or_again(world, act, self._delete)
            case "settings":
                await self._once_or_again(world, act, self._set)
            case "virtual clusters":
                await self._once_or_again(world, act, self._share)

    async def _submit(self, world: World, act: Act) -> None:
        if act.manner == "twice":
            async with asyncio.TaskGroup() as group:
                group.create_task(self._submit_until_answered(world, act))
                group.create_task(self._submit_until_answered(world, act))
        else:
            await self._submit_until_answered(world, act)
        if act.manner == "late":
            await asyncio.sleep(_LATE_S)
            await self._submit_until_answered(world, act)

    async def _submit_until_answered(self, world: World, act: Act) -> None:
        key = f"key-{act.number}"
        body = msgspec.json.encode(manifest_of(act.job, key, act.wish))
        for _ in range(_PATIENCE):
            headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
            answer = await self._ask(world, act, "submit", key, "POST", "/api/v1/jobs", headers=headers, body=body)
            if answer is not None and answer.status < 500:
                await self._read_back(world, "submit", key, answer)
                return
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _once_or_again(self, world: World, act: Act, ask: Callable[[World, Act, str], Any]) -> None:
        for attempt in range(_PATIENCE):
            # Every attempt is told apart, because each may be recorded.
            tag = f"{act.number}{attempt:02}"
            answer: Answer | None = await ask(world, act, tag)
            if answer is not None and answer.status < 500:
                if act.kind in ("change", "delete") and act.manner != "whole":
                    await self._read_back(world, act.kind, tag if act.kind == "change" else f"dst-{tag}", answer)
                return
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _change(self, world: World, act: Act, tag: str) -> Answer | None:
        body = msgspec.json.encode({"priority": int(tag), **act.wish})
        headers = {"Content-Type": "application/json"}
        path = f"/api/v1/jobs/{act.job}"
        return await self._ask(world, act, "change", tag, "PATCH", path, headers=headers, body=body)

    async def _delete(self, world: World, act: Act, tag: str) -> Answer | None:
        if act.manner == "whole":
            tag = f"{WHOLE}{tag}"
            path = f"/api/v1/arrays/{act.job}?reason={tag}"
            return await self._ask(world, act, "delete array", tag, "DELETE", path)
        tag = f"dst-{tag}"
        return await self._ask(world, act, "delete", tag, "DELETE", f"/api/v1/jobs/{act.job}?reason={tag}")

    async def _set(self, world: World, act: Act, tag: str) -> Answer | None:
        # 1 to 61 s; the digits behind the comma tell requests apart.
        ratelimit_s = round(1.0 + act.number * 7 % 60 + int(tag) * 1e-6, 6)
        body = msgspec.json.encode({"ratelimit_s": ratelimit_s, **act.wish})
        path, headers = f"/api/v1/pools/{act.job}/settings", {"Content-Type": "application/json"}
        return await self._ask(world, act, "settings", f"{ratelimit_s:.6f}", "PATCH", path, headers=headers, body=body)

    async def _share(self, world: World, act: Act, tag: str) -> Answer | None:
        # Everybody is a member of each; the last member tells requests apart.
        tag = f"user-{tag}"
        clusters = {name: {"cells": cells, "members": ["*", tag]} for name, cells in act.wish.items()}
        body = msgspec.json.encode({"virtualClusters": clusters})
        path, headers = f"/api/v1/virtual-clusters?pool={act.job}&force=true", {"Content-Type": "application/json"}
        return await self._ask(world, act, "virtual clusters", tag, "PUT", path, headers=headers, body=body)

    async def _read_back(self, world: World, kind: Kind, tag: str, told: Answer) -> None:
        """Read from any replica what was acknowledged, and see that it is there."""
        answered = _answered(kind, tag, told)
        if not answered.is_acknowledged or answered.position is None:
            return
        path = f"/api/v1/jobs/@{answered.job_id}?after={answered.position}"
        answer = await self._answer(world, "GET", path)
        if answer is None or answer.status >= 500:
            return
        world.note(f"user read {answered.job_id} after {answered.position}: {answer.status}")
        with breaching(world):
            if answer.status != 200:
                what = f"{kind} {tag} was acknowledged, and GET {path} is answered {answer.status}"
                raise Broken("read your writes", what)
            self._journal.read(answered, int(answer.json()["revision"]))

    async def _answer(  # noqa: PLR0913 - a request has its parts
        self,
        world: World,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 30.0,
    ) -> Answer | None:
        """Ask any replica once; None = no answer."""
        self.requests += 1
        try:
            answer = await world.ask(method, path, headers=headers, body=body, timeout_s=timeout_s)
        except Unanswered:
            return None
        with breaching(world):
            if answer.status == 500:
                raise Broken("server error", f"{method} {path} was answered 500: {answer.body.decode()[:300]}")
        return answer

    async def _ask(  # noqa: PLR0913 - a request has its parts
        self,
        world: World,
        act: Act,
        kind: Kind,
        tag: str,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer | None:
        """Ask any replica once, and write down what came of it; None = no answer."""
        self._journal.sent(kind, tag)
        answer = await self._answer(world, method, path, headers=headers, body=body, timeout_s=act.timeout_s)
        answered = _answered(kind, tag, answer)
        told = f"{answered.status or 'no answer'} {answered.job_id}".rstrip()
        world.note(f"user {kind} {tag} {method} {path.partition('?')[0]}: {told}")
        with breaching(world):
            self._journal.answered(answered)
        return answer


@contextmanager
def breaching(world: World) -> Iterator[None]:
    """Let what is broken in the block end the run."""
    try:
        yield
    except Broken as broken:
        world.breach(str(broken))


def _answered(kind: Kind, tag: str, answer: Answer | None) -> Answered:
    if answer is None or answer.status >= 500:
        return Answered(kind=kind, tag=tag, status=0)
    job_id = ""
    if kind not in ("settings", "virtual clusters") and 200 <= answer.status < 300:
        told = answer.json()
        job_id = str((told["job"] if kind == "submit" else told)["array_id" if kind == "delete array" else "job_id"])
    position = answer.headers.get("voda-position")
    return Answered(
        kind=kind,
        tag=tag,
        status=answer.status,
        job_id=job_id,
        position=None if position is None else int(position),
    )
