"""Events as short English sentences.

Rule: pure; the type checker refuses an event type without a sentence.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import assert_never, get_args

from msgspec.structs import asdict

from voda.domain.cells import EVERYBODY
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.settings import flat
from voda.events import types as facts
from voda.events.envelope import Event
from voda.events.records import Data
from voda.events.text.cells import request_text, shares_text
from voda.events.text.failures import end_text, failure_text, void_text
from voda.events.text.nodes import amount_text, refusal_text, stuck_text
from voda.events.text.pods import pod_text
from voda.events.text.reasons import queue_text
from voda.events.text.requests import cancel_request_text, requested_text
from voda.events.text.stalls import sick_text, stall_text
from voda.text import counted, size, span

TYPES: Mapping[str, type[Data]] = {fact.TYPE: fact for fact in get_args(facts.AnyFact)}
"""Every event type there is, by its word in the log."""
_LISTED = 4
"""Jobs of a plan that a sentence names; it counts the others."""
_JobObservation = (
    facts.JobRegistered
    | facts.JobSilent
    | facts.JobStalled
    | facts.WorkerStarted
    | facts.WorkerExited
    | facts.ProgramFailed
    | facts.JobProgressed
    | facts.JobCompleted
    | facts.JobFailed
    | facts.JobCanceled
    | facts.JobFolderDeleted
    | facts.ActionFailed
)
_LEFT: Mapping[str, str] = {
    "": "",
    "deleted": "deleted",
    "no_pool": "no node of a pool any more",
    "unseen": "not there any more",
}
_EXITS: Mapping[str, str] = {
    "stopped": "stopped",
    "migrated": "left for another node",
    "finished": "finished",
    "failed": "failed",
    "failed_for_good": "failed for good: the others go on without",
    "evicted": "evicted",
    "node_lost": "lost with their node",
}


def describe(event: Event) -> str:
    """Return what happened, without time and subject: `completed`."""
    match fact := event.data:
        case facts.JobSubmitted():
            return f"submitted: {_spec_text(fact.spec)}"
        case facts.JobCancelRequested():
            return cancel_request_text(fact.reason, is_kill=fact.is_kill)
        case facts.JobHaltRequested():
            return requested_text("halted", fact.reason.by, fact.reason.text)
        case facts.JobResumeRequested():
            return "resumed"
        case facts.JobChanged():
            return f"changed: {job_change_text(fact)}"
        case facts.SettingsChanged(settings=patch):
            return f"changed: {_assignments(flat(patch))}"
        case facts.LeaderElected():
            return f"{fact.leader} leads"
        case facts.PlanAdopted():
            return f"plan {fact.number} after {fact.cause} ({fact.policy}, {fact.placer}): {_changes(fact)}"
        case facts.JobQueueLevelChanged():
            why = queue_text(fact.reason) if fact.reason is not None else ""
            return f"{fact.job_id} moved to queue {fact.queue_level}{_because(why)}"
        case facts.JobBackedOff():
            return f"{fact.job_id} {backed_off_text(fact)}"
        case facts.NodeDrainRequested():
            return requested_text("drained", fact.reason.by, fact.reason.text)
        case facts.NodeUndrainRequested():
            return "undrained: it takes workers again"
        case facts.VirtualClustersApplied():
            return _virtual_clusters(fact)
        case (
            facts.NodeJoined()
            | facts.NodeChanged()
            | facts.NodeRoomChanged()
            | facts.NodeLeft()
            | facts.WorkerRefused()
            | facts.WorkerGpuSick()
        ):
            return _on_node(fact)
        case facts.ShareAssigned() | facts.ShareReleased() | facts.ShareRequested() | facts.ShareRequestWithdrawn():
            return _of_share(fact)
        case facts.GangPlaced() | facts.GangJoined() | facts.GangLeft():
            return _of_gang(fact)
        case _:
            return _of_job(fact, event.recorded_at)


def backed_off_text(fact: facts.JobBackedOff) -> str:
    """Return why a job is stuck, and for how long others go first, without the job."""
    used = f"{fact.at_work} of {counted(fact.planned, 'planned worker')} at work"
    return f"is stuck, {used}: {stuck_text(fact.reason)}; others go first for {span(fact.retry_after_s)}"


def action_failed_text(fact: facts.ActionFailed, at: float) -> str:
    """Return which action failed, why, and when it is tried again; it failed at that instant."""
    again = f"; next try in {span(max(0.0, fact.retry_at - at))}" if fact.retry_at is not None else ""
    return f"{fact.action} failed (attempt {fact.attempt}): {fact.error}{again}"


def sick_gpu_text(fact: facts.WorkerGpuSick) -> str:
    """Return what became of a worker's GPU."""
    if not fact.reason:
        return f"the GPU of worker {fact.worker} on {fact.node} is well again"
    return sick_text(fact.worker, fact.node, fact.gpu, fact.reason, fact.other)


def _on_node(fact: facts.NodeFact | facts.WorkerRefused | facts.WorkerGpuSick) -> str:
    match fact:
        case facts.NodeJoined():
            return f"joined with {_shape(fact.node)}"
        case facts.NodeChanged():
            return f"is now {_shape(fact.node)}"
        case facts.NodeRoomChanged():
            left = [f"{amount_text(resource, amount)} {resource}" for resource, amount in (fact.room or {}).items()]
            return f"others leave it {', '.join(left[:_LISTED]) or 'nothing'}"
        case facts.NodeLeft():
            return f"left{_because(_LEFT[fact.how])}"
        case facts.WorkerGpuSick():
            return sick_gpu_text(fact)
        case facts.WorkerRefused():
            can = "cannot take a worker" if fact.reason else "can take a worker again"
            if fact.fits:
                can = f"takes {counted(fact.fits, 'worker')}" if fact.reason else f"is tried with {fact.fits} workers"
            return f"{fact.node} {can}{_because(refusal_text(fact.reason) if fact.reason is not None else '')}"
        case _:
            assert_never(fact)


def _of_share(fact: facts.ShareFact) -> str:
    match fact:
        case facts.ShareAssigned():
            return f"{fact.pod} gets {shares_text(fact.containers)}"
        case facts.ShareReleased():
            return f"{fact.pod or fact.pod_uid} has no GPU any more{_because(pod_text(fact.reason))}"
        case facts.ShareRequested():
            asked = ", ".join(f"{name} ({request_text(each)})" for name, each in fact.containers.items())
            return f"{fact.pod} waits for GPUs that jobs can spare: {asked}"
        case facts.ShareRequestWithdrawn():
            return f"{fact.pod or fact.pod_uid} waits for none of its GPUs any more{_because(pod_text(fact.reason))}"
        case _:
            assert_never(fact)


def _of_gang(fact: facts.GangFact) -> str:
    match fact:
        case facts.GangPlaced():
            workers = counted(len(fact.placement), "pod")
            nodes = ", ".join(dict.fromkeys(cells.node for cells in fact.placement))
            is_guaranteed = any(cells.quota for cells in fact.placement)
            how = f"guaranteed by {fact.request.virtual_cluster}" if is_guaranteed else "on idle cells"
            return f"gang {fact.request.name} has cells for {workers} on {nodes}, {how}"
        case facts.GangJoined():
            return f"{fact.pod} has place {fact.slot} of gang {fact.gang}"
        case facts.GangLeft():
            return f"{fact.pod or fact.pod_uid} has left gang {fact.gang}{_because(pod_text(fact.reason))}"
        case _:
            assert_never(fact)


def _of_job(fact: _JobObservation, at: float) -> str:
    match fact:
        case facts.JobRegistered():
            what = fact.kind or "object in the cluster"
            if not fact.uid:
                goes = "is made anew" if fact.reason else "is gone and will be created again"
                return f"its {what} {goes}{_because(void_text(fact.reason))}"
            return f"its {what} is {fact.uid}"
        case facts.JobStalled():
            return f"is stalled: {stall_text(fact.reason)}" if fact.reason is not None else "continues"
        case facts.JobSilent():
            change = "resized" if fact.workers_before else "started"
            return "prints again" if fact.since is None else f"has printed nothing since it was {change}"
        case facts.WorkerStarted():
            return f"{counted(len(fact.workers), 'worker')} started on {per_node(fact.workers.values())}"
        case facts.WorkerExited():
            code = "" if fact.exit_code is None else f" with exit code {fact.exit_code}"
            return f"{counted(len(fact.workers), 'worker')} {_EXITS[fact.cause]}{code}"
        case facts.ProgramFailed() if fact.times_inside:
            times = f", {counted(fact.times_inside, 'time')}" if fact.times_inside > 1 else ""
            return f"in {fact.replica} a process {end_text(fact.reason)}{times}; the replica goes on"
        case facts.ProgramFailed():
            tries = f", try {fact.next_try} of {fact.most_tries}" if fact.next_try else ""
            return f"{fact.replica} {end_text(fact.reason)}; it will be started again{tries}"
        case facts.JobProgressed():
            timed = "" if fact.epoch_s is None else f", the last in {fact.epoch_s:.4g} s"
            epochs = "1 epoch" if fact.epochs_done == 1 else f"{fact.epochs_done:g} epochs"
            rate = "" if fact.samples_per_s is None else f", {fact.samples_per_s:.4g} samples/s"
            return f"{epochs} done on {counted(fact.workers, 'worker')}{timed}{rate}"
        case facts.JobCompleted():
            return "completed"
        case facts.JobFailed():
            return f"failed{_because(failure_text(fact.reason))}"
        case facts.JobCanceled():
            return "canceled"
        case facts.JobFolderDeleted():
            return f"folder deleted by {fact.by}, {size(fact.size_bytes)}"
        case facts.ActionFailed():
            return action_failed_text(fact, at)
        case _:
            assert_never(fact)


def jobs_of(fact: facts.AnyFact) -> frozenset[str]:
    """Return the jobs that a fact is about; a plan is about every job that it names."""
    match fact:
        case facts.JobSubmitted():
            return frozenset({fact.spec.job_id})
        case facts.PlanAdopted():
            return frozenset({*fact.placed, *fact.released, *fact.reasons})
        case _:
            job_id = getattr(fact, "job_id", None)
            return frozenset({job_id} if isinstance(job_id, str) else ())


def subject_of(event: Event) -> str:
    """Return the subject of the event: the job, the node, or the stream where it is neither."""
    family, _, key = event.stream.partition(".")
    return key if family == "job" else f"node {key}" if family in ("node", "shares") else event.stream


def per_node(nodes: Iterable[str]) -> str:
    """Return the number of workers on each node: `n1 x2, n2`; `-` for none."""
    counts = Counter(nodes)
    return ", ".join(f"{node} x{count}" if count > 1 else node for node, count in counts.items()) or "-"


def _spec_text(spec: JobSpec) -> str:
    size = f"{spec.min_replicas}-{spec.max_replicas}" if spec.is_elastic else f"{spec.max_replicas}"
    size = size if spec.sizes is None else str(spec.sizes)
    gpus = "" if spec.gpus_per_replica == 1 else f" of {spec.gpus_per_replica} GPUs"
    gpus = f" with {request_text(spec.share)} of a GPU" if spec.share else gpus
    epochs = f", {counted(spec.epochs, 'epoch')}" if spec.epochs else ""
    user = f", by {spec.user}" if spec.user else ""
    array = f", task {spec.array.index} of {spec.array.name}[{spec.array.indices}]" if spec.array else ""
    after = f", after {', '.join(each.target for each in spec.after)}" if spec.after else ""
    replicas = f"{size} replicas" if size != "1" else "1 replica"
    requested = f", {spec.requested} requested" if spec.is_elastic else ""
    return f"{replicas}{gpus}{requested}{epochs}{user}{array}{after}"


def job_change_text(fact: facts.JobChanged) -> str:
    """Return the new request: `max_replicas = 4, priority = 10`."""
    given = {name: value for name, value in asdict(fact).items() if value is not None and name not in ("job_id", "by")}
    if fact.sizes is not None:
        given["sizes"] = str(fact.sizes)
    if "needs" in given:
        given["needs"] = "what its pods ask of a node now"
    return _assignments(given)


def _assignments(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items()) or "nothing"


def _virtual_clusters(fact: facts.VirtualClustersApplied) -> str:
    """Return the guarantees: `virtual clusters: vision (2 node, members ada), speech (1 node)`."""
    texts = []
    for name, spec in fact.cells.virtual_clusters.items():
        parts = [f"{quota.cell_number} {quota.cell_type}" for quota in spec.virtual_cells]
        parts += [f"pinned {pin.pinned_cell_id}" for pin in spec.pinned_cells] or ([] if parts else ["no cells"])
        parts += [] if EVERYBODY in spec.members else [f"members {' '.join(spec.members) or 'nobody'}"]
        texts.append(f"{name} ({', '.join(parts)})")
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return f"virtual clusters: {', '.join(texts[:_LISTED])}{more}" if texts else "no virtual clusters any more"


def _shape(node: Node) -> str:
    notes = [] if node.is_ready else ["not ready"]
    notes += [] if node.is_schedulable else ["cordoned"]
    notes += ["draining"] if node.is_draining and node.is_ready and node.is_schedulable else []
    notes += [f"tainted {taint.text}" for taint in node.taints]
    notes += [f"{node.foreign_gpus} used by others"] if node.foreign_gpus else []
    notes += [f"{counted(len(node.devices), 'GPU')} to share"] if node.devices else []
    return ", ".join([counted(node.gpus, "GPU"), *notes])


def _changes(fact: facts.PlanAdopted) -> str:
    changes = [f"{job_id} on {per_node(nodes)}" for job_id, nodes in sorted(fact.placed.items())]
    changes += [f"{job_id} released" for job_id in fact.released]
    changes += [f"launcher of {job_id} on {node}" for job_id, node in sorted(fact.launchers.items()) if node]
    moved = {*fact.placed, *fact.released}
    # A job whose guarantee alone changes keeps its workers.
    changes += [
        f"{job_id} stays" if job_id in fact.guaranteed else f"{job_id} waits"
        for job_id in sorted(fact.reasons)
        if job_id not in moved
    ]
    more = f" and {len(changes) - _LISTED} more" if len(changes) > _LISTED else ""
    return "; ".join(changes[:_LISTED]) + more if changes else "no change"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
