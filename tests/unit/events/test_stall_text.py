"""What a job waits for, in words."""

import pytest

from voda.domain.reasons.nodes import Said
from voda.domain.reasons.stalls import (
    Attaching,
    ContainerWaits,
    LacksClaims,
    LacksPods,
    LostNode,
    NotBound,
    OtherGates,
    PodStays,
    StallReason,
    TakenGpus,
    Unscheduled,
    WorkersStay,
)
from voda.events.text.stalls import stall_text


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (None, ""),
        (Said(text="no image"), "no image"),
        (
            LacksPods(operator="mpi-operator", object="MPIJob"),
            "not all of its workers have a pod: see whether mpi-operator runs, and what it says of the MPIJob"
            " (kubectl describe)",
        ),
        (
            LacksPods(operator="mpi-operator", object="MPIJob", said="quota is used up"),
            "not all of its workers have a pod: quota is used up",
        ),
        (
            PodStays(pod="a-0"),
            "pod a-0 was deleted and does not go: its node (none) has not confirmed its end, or a finalizer keeps it",
        ),
        (
            WorkersStay(operator="mpi-operator"),
            "it is suspended and its workers are still there: see whether mpi-operator runs",
        ),
        (
            Unscheduled(launcher="a-x7"),
            "its launcher a-x7 has no node: kube-scheduler finds none (kubectl describe pod)",
        ),
        (
            OtherGates(worker=0, gates=("quota", "x")),
            "worker 0 is not to be placed yet: scheduling gates quota, x are closed",
        ),
        (
            NotBound(worker=1, node="n1", scheduler="kube-scheduler"),
            "worker 1 may go to n1, and kube-scheduler does not bind it: see whether it runs",
        ),
        (
            Attaching(worker=1, node="n1", conditions=("fabric/attached",)),
            "devices of worker 1 are being attached to n1: kube-scheduler binds it once their driver says"
            " fabric/attached",
        ),
        (
            Attaching(worker=1, node="n1", conditions=()),
            "devices of worker 1 are attached to n1, and kube-scheduler does not bind it yet",
        ),
        (ContainerWaits(node="n1", container="train"), "its launcher on n1: container train cannot pull its image"),
        (
            LacksClaims(pod="a-0", claims=("gpus", "nic")),
            "worker a-0 has no ResourceClaim for gpus, nic yet: see whether kube-controller-manager runs",
        ),
        (LostNode(node="n9"), "node n9 is not there any more"),
        (
            TakenGpus(node="n1", free=0.5, needed=3, resource="nvidia.com/gpu"),
            "node n1 has 0.5 nvidia.com/gpu free, workers on it need 3",
        ),
    ],
)
def test_stall_is_said_in_one_sentence(reason: StallReason | None, text: str) -> None:
    assert stall_text(reason) == text
