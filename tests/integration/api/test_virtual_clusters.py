"""Virtual clusters over HTTP: what is applied, what is refused, and whose jobs go where."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.builders import a_node, a_spec
from tests.integration.api.test_plans import a_leader, decided
from tests.service import START, Answer, Service, a_manifest, a_service
from voda.application.lookup import pool_state
from voda.auth.tokens import Authenticator, Role
from voda.clock import VirtualClock
from voda.domain.errors import StoreUnavailable
from voda.events.types import JobSubmitted, NodeJoined, NodeLeft, VirtualClustersApplied
from voda.log.memory import MemoryStore
from voda.manifests.virtual_clusters import read_virtual_clusters, virtual_clusters_yaml
from voda.wire.base import Problem
from voda.wire.jobs import JobView, SubmissionView
from voda.wire.virtual_clusters import (
    ApplyView,
    CellList,
    QuotaChangeView,
    SpecificationView,
    VirtualClusterList,
    VirtualClusterView,
)

PATH = "/api/v1/virtual-clusters"
TWO_TEAMS = """
virtualClusters:
  vision: {cells: {node: 2}, members: [ada]}
  speech: {cells: {node.gpu: 4}, members: [bob], policy: elastic-srjf}
"""
NODES = {"n1": 8, "n2": 8, "n3": 8}


def tokens(folder: Path, **roles: Role) -> tuple[Authenticator, Mapping[str, str]]:
    """Return an access, and the token of each user."""
    access = Authenticator.open(folder, VirtualClock(START))
    return access, {user: access.add(user, role) for user, role in roles.items()}


async def apply(service: Service, text: str = TWO_TEAMS, query: str = "", token: str = "") -> Answer:
    return await service.ask(
        "PUT", f"{PATH}{query}", body=text, headers={"Content-Type": "application/yaml"}, token=token
    )


async def facts(service: Service) -> list[VirtualClustersApplied]:
    events = await service.backend.journal.store.read(0, 100, stream="cells.default")
    return [event.data for event in events if isinstance(event.data, VirtualClustersApplied)]


def annotated(name: str, **annotations: str) -> Mapping[str, Any]:
    manifest = a_manifest(name)
    given = {f"voda.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **given}}}


async def test_virtual_clusters_when_applied_are_a_fact_and_shown_with_what_is_left_for_default() -> None:
    async with a_service(nodes=NODES) as service:
        answer = await apply(service)
        assert answer.status == 200
        view = answer.as_a(ApplyView)
        assert (view.pool, view.revision, view.is_applied, view.downgraded) == ("default", 1, True, ())
        assert [(each.virtual_cluster, each.cell_type, each.before, each.after) for each in view.quotas] == [
            ("default", "gpu", 0, 4),
            ("speech", "gpu", 0, 4),
            ("vision", "node", 0, 2),
        ]
        clusters = (await service.ask("GET", PATH)).as_a(VirtualClusterList).items
        assert {each.name: (each.members, each.policy) for each in clusters} == {
            "vision": (("ada",), "elastic-fifo"),
            "speech": (("bob",), "elastic-srjf"),
            "default": (("*",), "elastic-fifo"),
        }
        vision = (await service.ask("GET", f"{PATH}/vision")).as_a(VirtualClusterView)
        assert [(each.cell_type, each.cells, each.cells_in_use, each.gpus) for each in vision.quotas] == [
            ("node", 2, 0, 16)
        ]
        (fact,) = await facts(service)
        assert [cell.cell_address for cell in fact.cells.physical_cluster.physical_cells] == ["n1", "n2", "n3"]


async def test_dry_run_says_what_would_change_and_changes_nothing() -> None:
    async with a_service(nodes=NODES) as service:
        view = (await apply(service, query="?dry_run=true")).as_a(ApplyView)
        assert (view.is_applied, view.revision, len(view.quotas)) == (False, 0, 3)
        assert await facts(service) == []
        await apply(service)
        view = (await apply(service, TWO_TEAMS.replace("node: 2", "node: 1"), "?dry_run=true")).as_a(ApplyView)
        assert view.quotas == (
            QuotaChangeView(virtual_cluster="default", chain="node", cell_type="node", pin="", before=0, after=1),
            QuotaChangeView(virtual_cluster="vision", chain="node", cell_type="node", pin="", before=2, after=1),
        )


async def test_reconfiguration_when_a_job_that_runs_would_lose_guarantees_needs_force() -> None:
    async with a_service(nodes=NODES) as service:
        leader = await a_leader(service)
        await apply(service)
        spec = a_spec("a", virtual_cluster="vision", min_replicas=12, max_replicas=12)
        await service.happens(JobSubmitted(spec=spec))
        await decided(service, leader)
        vision = (await service.ask("GET", f"{PATH}/vision")).as_a(VirtualClusterView)
        assert [(each.cells_in_use, each.gpus_in_use) for each in vision.quotas] == [(2, 12)]
        smaller = TWO_TEAMS.replace("node: 2", "node: 1")
        refused = await apply(service, smaller)
        assert (refused.status, refused.as_a(Problem).detail.partition(":")[0]) == (
            409,
            "a would lose guarantees for workers that run, which then go on only while GPUs are idle",
        )
        told = (await apply(service, smaller, "?dry_run=true")).as_a(ApplyView)
        assert [(each.job_id, each.before, each.after) for each in told.downgraded] == [("a", 12, 0)]
        assert (await apply(service, smaller, "?force=true")).as_a(ApplyView).is_applied
        await decided(service, leader)
        plan = pool_state(service.backend.journal.view, "default").plan
        assert (len(plan.placement["a"]), "a" in plan.guaranteed) == (12, False)


async def test_virtual_clusters_when_they_are_those_already_are_not_recorded_again() -> None:
    async with a_service(nodes=NODES) as service:
        await apply(service)
        assert not (await apply(service)).as_a(ApplyView).is_applied
        assert len(await facts(service)) == 1


async def test_virtual_clusters_when_none_are_left_are_gone() -> None:
    async with a_service(nodes=NODES) as service:
        await apply(service)
        assert (await apply(service, "virtualClusters: {}")).as_a(ApplyView).is_applied
        assert (await service.ask("GET", PATH)).as_a(VirtualClusterList).items == ()
        assert (await service.ask("GET", "/api/v1/cells")).as_a(CellList).items == ()


@pytest.mark.parametrize(
    ("text", "status", "sentence"),
    [
        (
            "virtualClusters: {a: {cells: {node: 4}}}",
            422,
            "owed 4 cells of type node (level 2) in chain node, and 3 are available",
        ),
        ("virtualClusters: {a: {cells: {node: 2}}, b: {cells: {node.gpu: 9}}}", 422, "owed 9 cells of type gpu"),
        ("virtualClusters: {a: {cells: {rack: 1}}}", 422, "quota rack begins with rack, and no topmost physical cell"),
        ("virtualClusters: {a: {cells: {gpu: 4}}}", 422, "(there are: node); write node.gpu"),
        ("virtualClusters: {a: {cells: {node.switch: 1}}}", 422, "quota node.switch ends with switch, expected a type"),
        ("virtualClusters: {a: {pins: [dgx]}}", 422, "no physical cell has pinnedCellId dgx"),
        ("virtualClusters:\n  a: {policy: best}", 422, "virtualClusters.a.policy: "),
        ("virtualClusters:\n  a: {quota: 1}", 422, "line 2: virtualClusters.a has 'quota', which is unknown: expected"),
        ("pool: a100", 404, "pool 'a100' is not known"),
        (
            "physicalCluster:\n"
            "  cellTypes: {a: {childCellType: b, childCellNumber: 2}, b: {childCellType: a, childCellNumber: 2}}\n"
            "  physicalCells: [{cellType: a}]\n"
            "virtualClusters: {v: {}}",
            422,
            "cell types contain each other: a > b > a",
        ),
        (
            "physicalCluster:\n"
            "  cellTypes: {node: {childCellType: gpu, childCellNumber: 8, isNodeLevel: true}}\n"
            "  physicalCells: [{cellType: node, cellAddress: n1}, {cellType: node, cellAddress: n1}]\n"
            "virtualClusters: {v: {}}",
            422,
            "device 0 of node n1 is in two physical cells, n1/0 and n1/0",
        ),
        (
            "physicalCluster:\n"
            "  cellTypes: {node: {childCellType: gpu, childCellNumber: 8, isNodeLevel: true}}\n"
            "  physicalCells: [{cellType: node, cellAddress: n1, pinnedCellId: p}]\n"
            "virtualClusters: {v: {pins: [p]}, w: {pins: [p]}}",
            422,
            "pinned cell p is given twice, to virtual clusters v and w",
        ),
        ("[]", 422, "expected a mapping"),
    ],
)
async def test_file_when_it_is_wrong_is_refused_and_changes_nothing(text: str, status: int, sentence: str) -> None:
    async with a_service(nodes=NODES) as service:
        answer = await apply(service, text)
        assert (answer.status, sentence in answer.as_a(Problem).detail) == (status, True), answer.body
        assert await facts(service) == []


async def test_second_of_two_reconfigurations_when_it_expects_the_state_before_is_refused() -> None:
    async with a_service(nodes=NODES) as service:
        assert (await apply(service, query="?revision=0")).status == 200
        answer = await apply(service, "virtualClusters: {a: {}}", "?revision=0")
        assert (answer.status, "at revision 1 now" in answer.as_a(Problem).detail) == (409, True)
        assert (await apply(service, "virtualClusters: {a: {}}", "?revision=1")).as_a(ApplyView).revision == 2


async def test_reconfigurations_when_two_come_at_once_are_applied_once() -> None:
    async with a_service(nodes=NODES) as service:
        texts = (TWO_TEAMS, TWO_TEAMS.replace("node: 2", "node: 1"))
        answers = await asyncio.gather(*(apply(service, text) for text in texts))
        assert sorted(answer.status for answer in answers) == [200, 409]
        assert len(await facts(service)) == 1


class FailingStore(MemoryStore):
    """A log that cannot be reached at times, or whose answer to an append is lost."""

    fails: Literal["", "before", "after"] = ""

    async def append(self, stream: str, *args: Any, **options: Any) -> int:
        if self.fails == "before":
            raise StoreUnavailable("the log does not answer")
        position = await super().append(stream, *args, **options)
        if self.fails == "after" and stream.startswith("cells."):
            raise StoreUnavailable("the log does not answer")
        return position


@pytest.mark.parametrize(("fails", "recorded"), [("before", 0), ("after", 1)])
async def test_virtual_clusters_when_the_log_does_not_answer_are_applied_once_or_not_at_all(
    fails: Literal["before", "after"], recorded: int
) -> None:
    store = FailingStore()
    async with a_service(store=store, nodes=NODES) as service:
        store.fails = fails
        answer = await apply(service)
        assert (answer.status, answer.as_a(Problem).detail) == (503, "the log does not answer")
        assert answer.headers["Retry-After"] == "1"
        store.fails = ""
        assert len(await facts(service)) == recorded
        again = (await apply(service)).as_a(ApplyView)
        assert (again.is_applied, again.revision) == (not recorded, 1)
        assert len(await facts(service)) == 1


async def test_quotas_when_a_user_would_change_them_are_left_to_admins(tmp_path: Path) -> None:
    access, of = tokens(tmp_path, ada="user", boss="admin")
    async with a_service(access=access, nodes=NODES) as service:
        assert (await apply(service, token=of["ada"])).status == 403
        assert (await apply(service, token=of["boss"])).status == 200
        assert (await service.ask("GET", PATH, token=of["ada"])).status == 200


async def test_job_when_its_user_is_no_member_is_refused_and_else_is_in_the_virtual_cluster(tmp_path: Path) -> None:
    access, of = tokens(tmp_path, ada="user", bob="user", eve="user", boss="admin")
    async with a_service(access=access, nodes=NODES) as service:
        await apply(service, token=of["boss"])

        async def submit(name: str, user: str, **annotations: str) -> Answer:
            return await service.ask("POST", "/api/v1/jobs", body=annotated(name, **annotations), token=of[user])

        refused = await submit("a", "eve", virtual_cluster="vision")
        assert (refused.status, refused.as_a(Problem).detail) == (
            403,
            "user eve is no member of virtual cluster vision: submit to default, or ask an admin to become one",
        )
        for name, user, annotations, cluster in (
            ("b", "ada", {}, "vision"),
            ("c", "eve", {}, "default"),
            ("d", "bob", {"virtual_cluster": "default"}, "default"),
            ("e", "boss", {"virtual_cluster": "speech"}, "speech"),
        ):
            assert (await submit(name, user, **annotations)).status == 201
            job = (await service.ask("GET", f"/api/v1/jobs/@{name}", token=of["boss"])).as_a(JobView)
            assert job.virtual_cluster == cluster
        clusters = (await service.ask("GET", PATH, token=of["ada"])).as_a(VirtualClusterList).items
        assert {each.name: each.jobs for each in clusters} == {"vision": 1, "speech": 1, "default": 2}


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({"virtual_cluster": "audio"}, "pool default has no virtual cluster 'audio', expected one of vision, speech,"),
        ({"priority": "-2"}, "expected 0 to 1000, or -1 for opportunistic work without a guarantee, got -2"),
        ({"priority": "1001"}, "expected 0 to 1000, or -1 for opportunistic work without a guarantee, got 1001"),
        ({"virtual_cluster": "a b"}, "metadata.annotations[voda.dev/virtual-cluster]: expected 1 to 63 of letters"),
    ],
)
async def test_job_when_it_names_what_is_not_there_is_refused(annotations: Mapping[str, str], sentence: str) -> None:
    async with a_service(nodes=NODES) as service:
        await apply(service)
        answer = await service.ask("POST", "/api/v1/jobs", body=annotated("a", **annotations))
        assert (answer.status, sentence in answer.as_a(Problem).detail) == (422, True), answer.body


PINNED = """
physicalCluster:
  cellTypes: {node: {childCellType: gpu, childCellNumber: 8, isNodeLevel: true}}
  physicalCells:
  - {cellType: node, cellAddress: n1, pinnedCellId: lab}
  - {cellType: node, cellAddress: n2, pinnedCellId: dgx}
  - {cellType: node, cellAddress: n3}
virtualClusters:
  vision: {cells: {node: 1}, pins: [lab]}
  speech: {pins: [dgx]}
"""
_PIN = "metadata.annotations[voda.dev/pinned-cell]"


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({"pinned_cell": "lap"}, f"{_PIN}: virtual cluster vision has no pinned cell 'lap'; expected one of lab"),
        (
            {"pinned_cell": "dgx"},
            f"{_PIN}: virtual cluster vision has no pinned cell 'dgx', it is one of speech; expected one of lab",
        ),
        ({"pinned_cell": "x" * 300}, f"{_PIN}: expected 1 to 253 printable characters, got 'xxx"),
        (
            {"pinned_cell": "lab", "priority": "-1"},
            "metadata.annotations[voda.dev/priority]: a job in pinned cell 'lab' has a guarantee: expected 0 to 1000,"
            " got -1",
        ),
    ],
)
async def test_pinned_cell_when_it_cannot_be_used_is_refused(annotations: Mapping[str, str], sentence: str) -> None:
    async with a_service(nodes=NODES) as service:
        assert (await apply(service, PINNED)).status == 200
        body = annotated("a", virtual_cluster="vision", **annotations)
        answer = await service.ask("POST", "/api/v1/jobs", body=body)
        assert answer.status == 422
        assert answer.as_a(Problem).detail.startswith(sentence)


async def test_pinned_cell_when_its_virtual_cluster_has_it_is_shown_and_keeps_its_priority() -> None:
    async with a_service(nodes=NODES) as service:
        refused = await service.ask("POST", "/api/v1/jobs", body=annotated("a", pinned_cell="lab"))
        assert (refused.status, "pool default has no virtual clusters" in refused.as_a(Problem).detail) == (422, True)
        await apply(service, PINNED)
        body = annotated("a", virtual_cluster="vision", pinned_cell="lab")
        assert (await service.ask("POST", "/api/v1/jobs", body=body)).status == 201
        job = (await service.ask("GET", "/api/v1/jobs/a")).as_a(JobView)
        assert (job.virtual_cluster, job.pinned_cell) == ("vision", "lab")
        answer = await service.ask("PATCH", "/api/v1/jobs/a", body={"priority": -1})
        assert (answer.status, answer.as_a(Problem).field) == (422, "priority")


@pytest.mark.parametrize(
    ("annotations", "warning"),
    [
        (
            {"virtual_cluster": "vision", "min_replicas": "9", "max_replicas": "9"},
            "it starts only on idle cells of others, without a guarantee: the whole quota of virtual cluster vision"
            " holds 8 workers of 1 GPU, it needs 9 at least",
        ),
        (
            {"virtual_cluster": "vision", "pinned_cell": "lab", "min_replicas": "9", "max_replicas": "9"},
            "it never starts unless its minimum is less: pinned cell lab holds 8 workers of 1 GPU, it needs 9 at least",
        ),
        ({"virtual_cluster": "vision", "min_replicas": "8", "max_replicas": "9"}, ""),
        ({"virtual_cluster": "vision", "min_replicas": "9", "max_replicas": "9", "priority": "-1"}, ""),
    ],
)
async def test_job_when_no_guarantee_holds_it_is_submitted_with_a_warning(
    annotations: Mapping[str, str], warning: str
) -> None:
    async with a_service(nodes=NODES) as service:
        await apply(service, PINNED)
        answer = await service.ask("POST", "/api/v1/jobs", body=annotated("a", **annotations))
        assert answer.status == 201
        messages = [each.message for each in answer.as_a(SubmissionView).warnings]
        assert [each for each in messages if "holds" in each] == ([warning] if warning else [])


async def test_priority_when_changed_keeps_to_the_bounds_of_virtual_clusters() -> None:
    async with a_service(nodes=NODES) as service:
        await service.ask("POST", "/api/v1/jobs", body=annotated("a", priority="5000"))
        await apply(service)
        assert (await service.ask("PATCH", "/api/v1/jobs/a", body={"max_replicas": 3})).status == 200
        answer = await service.ask("PATCH", "/api/v1/jobs/a", body={"priority": 1001})
        assert (answer.status, answer.as_a(Problem).field) == (422, "priority")
        assert (await service.ask("PATCH", "/api/v1/jobs/a", body={"priority": -1})).status == 200


async def test_virtual_cluster_when_its_pool_has_none_is_refused() -> None:
    async with a_service() as service:
        answer = await service.ask("POST", "/api/v1/jobs", body=annotated("a", virtual_cluster="vision"))
        assert (answer.status, "pool default has no virtual clusters" in answer.as_a(Problem).detail) == (422, True)
        assert (await service.ask("POST", "/api/v1/jobs", body=annotated("a", priority="5000"))).status == 201


async def test_cells_when_listed_show_whose_they_are_and_what_is_bad() -> None:
    async with a_service(nodes=NODES) as service:
        await apply(service)
        await service.happens(NodeLeft(name="n2"))
        await service.backend.journal.view.wait_for(await service.backend.journal.store.position())
        cells = (await service.ask("GET", "/api/v1/cells")).as_a(CellList).items
        assert [(cell.address, cell.cell_type, cell.gpus, cell.is_bad) for cell in cells] == [
            ("n1", "node", 8, False),
            ("n2", "node", 8, True),
            ("n3", "node", 8, False),
        ]
        assert len((await service.ask("GET", "/api/v1/cells?devices=true")).as_a(CellList).items) == 27
        assert (await service.ask("GET", "/api/v1/cells?pool=none")).status == 404


async def test_specification_when_exported_is_applied_again_without_a_change() -> None:
    async with a_service(nodes=NODES) as service:
        await apply(service)
        view = (await service.ask("GET", "/api/v1/cells/specification")).as_a(SpecificationView)
        text = virtual_clusters_yaml(view.specification, view.pool)
        assert read_virtual_clusters(text.encode()).cells == view.specification
        assert not (await apply(service, text)).as_a(ApplyView).is_applied


async def test_apply_when_hiveds_own_keys_or_absent_nodes_are_in_the_file_warns() -> None:
    text = (
        "webServerAddress: ':9096'\n"
        "physicalCluster:\n"
        "  cellTypes: {K80-NODE: {childCellType: K80, childCellNumber: 4, isNodeLevel: true}}\n"
        "  physicalCells: [{cellType: K80-NODE, cellAddress: n1}, {cellType: K80-NODE, cellAddress: 10.0.0.9}]\n"
        "virtualClusters: {VC1: {virtualCells: [{cellType: K80-NODE, cellNumber: 1}]}}\n"
    )
    async with a_service(nodes={"n1": 4}) as service:
        view = (await apply(service, text)).as_a(ApplyView)
        assert view.warnings == (
            "webServerAddress is for HiveD's own processes: voda does not use it",
            "declared, but not in the pool: 10.0.0.9; their cells are bad until they join",
        )


@pytest.mark.parametrize(
    ("gpus", "warning"),
    [
        (4, "declared with more GPUs than are there: n1 (4 of 8); what is guaranteed of the others, no job gets"),
        (12, "declared with fewer GPUs than are there: n1 (12, declared 8); no job gets the others"),
    ],
)
async def test_apply_when_a_node_has_another_number_of_gpus_than_declared_warns(gpus: int, warning: str) -> None:
    text = (
        "physicalCluster:\n"
        "  cellTypes: {node: {childCellType: gpu, childCellNumber: 8, isNodeLevel: true}}\n"
        "  physicalCells: [{cellType: node, cellAddress: n1}]\n"
        "virtualClusters: {a: {cells: {node: 1}}}\n"
    )
    async with a_service(nodes={"n1": gpus}) as service:
        assert (await apply(service, text)).as_a(ApplyView).warnings == (warning,)


async def test_virtual_cluster_when_unknown_or_in_several_pools_is_asked_for_otherwise() -> None:
    async with a_service(nodes=NODES, pools=("default", "v100")) as service:
        await service.happens(NodeJoined(node=a_node("v1", pool="v100", gpus=8)))
        await apply(service)
        await apply(service, "pool: v100\nvirtualClusters: {vision: {cells: {node: 1}}}")
        assert (await service.ask("GET", f"{PATH}/audio")).status == 404
        assert (await service.ask("GET", f"{PATH}/vision")).status == 422
        view = (await service.ask("GET", f"{PATH}/vision?pool=v100")).as_a(VirtualClusterView)
        assert (view.pool, view.quotas[0].cells) == ("v100", 1)
