"""Pods that ask for GPUs, named where a command takes a job."""

from pathlib import Path

import msgspec
import pytest

from tests.kube.sharing import a_sharing_pod
from tests.served import served
from tests.service import a_manifest
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.errors import InvalidInput, NotFound
from voda.operator.pod_ports import PodPorts
from voda.operator.sharing.pod_explanations import PodExplanations
from voda.projections.cluster.shares import ShareAccounts
from voda.sharing.rating.raters import RATERS

COMMANDS = ("explain", "describe")


def pods(*named: str, is_synced: bool = True) -> PodPorts:
    """Return what a replica knows of pods that ask for half a GPU: NAMESPACE/NAME."""
    inventory, accounts = Inventory(PoolRule(), lambda job_id: None), ShareAccounts()
    for each in named:
        namespace, _, name = each.partition("/")
        body = a_sharing_pod(name, namespace, 50, 0)
        inventory.put_pod(each, msgspec.convert({**body, "metadata": {**body["metadata"], "uid": each}}, Pod))
    explanations = PodExplanations(
        inventory=inventory,
        shares=lambda: accounts,
        rater=RATERS["binpack"],
        claimants=None,
        is_extender=True,
        is_synced=lambda: is_synced,
    )
    return PodPorts(explanations=explanations)


@pytest.mark.parametrize("command", COMMANDS)
def test_pod_is_named_where_a_job_has_the_same_name(tmp_path: Path, command: str) -> None:
    with served(tmp_path, pods=pods("admin/digits", "default/alone")) as server:
        server.voda("submit", "-", input=msgspec.json.encode(a_manifest("digits")))
        assert "admin/digits: Waiting" not in server.voda(command, "admin/digits").stdout
        assert server.voda(command, "pod/admin/digits").stdout.startswith("admin/digits: Waiting\n")
        assert server.voda(command, "alone").stdout.startswith("default/alone: Waiting\n")
        with pytest.raises(NotFound, match="there is no pod ns/digits that asks for GPUs"):
            server.voda(command, "pod/ns/digits")


def test_pod_of_the_past_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, pods=pods("ns/a")) as server, pytest.raises(InvalidInput, match="of pods voda knows"):
        server.voda("explain", "pod/ns/a", "--at", "-10m")


@pytest.mark.parametrize("command", COMMANDS)
def test_name_that_is_no_job_is_said_to_be_none_while_a_replica_still_reads_the_cluster(
    tmp_path: Path, command: str
) -> None:
    with served(tmp_path, pods=pods(is_synced=False)) as server, pytest.raises(NotFound, match="nobody"):
        server.voda(command, "nobody")
