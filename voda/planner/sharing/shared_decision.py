"""The hook of a decision for shared GPUs: one job stands in for those that share a GPU, and pods are served."""

from msgspec.structs import replace

from voda.planner.candidates import Candidates, Placed
from voda.planner.sharing.answers import with_answers
from voda.planner.sharing.gpus_for_pods import serve_requests
from voda.planner.sharing.stand_ins import with_stand_ins
from voda.planner.wings import Decided
from voda.policies import Policy, gives_as_requested


def share_gpus(candidates: Candidates, policy: Policy, decided: Decided) -> Placed:
    """Return what becomes of the candidates, those that share GPUs among them.

    Jobs of a pool without virtual clusters give up GPUs that pods have requested, where the policy lets jobs shrink.
    Rule: no job loses its place for a pod, whatever the policy makes of fewer GPUs.
    """
    shares = with_stand_ins(candidates)
    shown = shares.candidates
    placed = decided(shown)
    if shown.view.cells is None and not gives_as_requested(policy):
        placed = serve_requests(shown.view, placed, lambda fewer: decided(replace(shown, view=fewer)))
    return with_answers(candidates.view, shares, placed)
