"""Dashboard, alerts and their documents name the metrics there are, and no others."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.builders import a_node
from tests.service import START, a_backend
from tests.unit.planner.virtual_clusters.pools import some_cells
from tests.unit.projections.test_shares import GPU, a_share, an_assignment
from voda.api.backend import Backend
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, NodeJoined, VirtualClustersApplied
from voda.telemetry.cell_gauges import CellGauges
from voda.telemetry.gauges import StateGauges, kubernetes_gauges, leadership_gauges
from voda.telemetry.prometheus import PrometheusTelemetry
from voda.telemetry.share_gauges import ShareGauges

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy/helm/voda/files/dashboard.json").read_text("utf-8"))
RULES = yaml.safe_load((ROOT / "deploy/helm/voda/files/alerts.yaml").read_text("utf-8"))
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
REFERENCE = (ROOT / "docs/metrics-reference.md").read_text("utf-8")
RUNBOOK = (ROOT / "docs/alerts.md").read_text("utf-8")
NAME = re.compile(r"\bvoda_[a-z_]+\b")
SUFFIXES = ("_bucket", "_sum", "_count")


async def families() -> dict[str, tuple[str, frozenset[str]]]:
    """Return name as queried -> type and labels, of all metrics of our own."""
    telemetry = PrometheusTelemetry("election", "kubernetes")
    telemetry.read(lambda: leadership_gauges(is_leading=True, epoch=1))
    async with a_backend(telemetry=telemetry) as backend:
        telemetry.read(lambda: kubernetes_gauges({"pods": 1}, {"waiting": 1}))
        await apply_a_virtual_cluster(backend)
        view = backend.journal.view
        cells = CellGauges(view, backend.pools)
        await cells.refresh()
        await share_a_gpu(backend)
        shares = ShareGauges(view, backend.pools)
        await shares.refresh()
        read = (StateGauges(backend.journal, backend.pools, backend.not_ready), cells, shares)
        own = [*telemetry.registry.collect(), *(family for one in read for family in one.collect())]
        known = {}
        collectors = telemetry.registry._collector_to_names
        labels = {getattr(one, "_name", ""): frozenset(getattr(one, "_labelnames", ())) for one in collectors}
        for family in own:
            if not family.name.startswith("voda_"):
                continue
            name = f"{family.name}_total" if family.type == "counter" else family.name
            seen = labels.get(family.name) or frozenset(key for one in family.samples for key in one.labels) - {"le"}
            known[name] = family.type, seen
        return known


async def apply_a_virtual_cluster(backend: Backend) -> None:
    await happens(backend, VirtualClustersApplied(pool="default", cells=some_cells({"vision": {"node": 1}})))


async def share_a_gpu(backend: Backend) -> None:
    await happens(backend, NodeJoined(node=a_node("g1", gpus=1, devices=(GPU,))))
    await happens(backend, an_assignment("u1", a_share(250), node="g1"))


async def happens(backend: Backend, data: AnyFact) -> None:
    fact = Fact(data=data, event_id=data.stream, recorded_at=START, actor="test")
    await backend.journal.view.wait_for(await backend.journal.store.append(data.stream, ANY_VERSION, [fact]))


def expressions() -> Iterator[str]:
    """Yield every query of the dashboard and the alerts."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for rule in ALERTS:
        yield rule["expr"]


def queried(text: str, known: dict[str, tuple[str, frozenset[str]]]) -> Iterator[tuple[str, str]]:
    """Yield every metric that a text names, and the name of its family."""
    for name in NAME.findall(text):
        stem = next((name.removesuffix(one) for one in SUFFIXES if name.endswith(one)), name)
        is_histogram = known.get(stem, ("", frozenset()))[0] == "histogram"
        yield name, stem if is_histogram else name


async def test_queries_name_metrics_that_exist() -> None:
    known = await families()
    for text in expressions():
        for name, family in queried(text, known):
            assert family in known, f"{name} in {text}"
            if known[family][0] == "histogram":
                assert name != family, f"{name} is a histogram, but {text} asks for it as a whole"


async def test_queries_select_and_group_by_labels_that_exist() -> None:
    known = await families()
    everywhere = {"job", "instance", "le"}
    for text in expressions():
        labels = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=(?!=))\s*\"", text))
        for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", text):
            labels |= {label.strip() for label in group.split(",")}
        there = everywhere.union(*(known[family][1] for _, family in queried(text, known)))
        assert labels <= there, f"{labels - there} in {text}"


async def test_every_metric_is_documented_with_its_type_and_labels_and_no_other() -> None:
    rows = re.findall(r"^\| `(voda_\w+)` \| (\w+) \| ([^|]*) \|", REFERENCE, re.MULTILINE)
    told = {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert told == await families()
    assert len(told) == len(rows)


async def test_runbook_names_metrics_that_exist() -> None:
    known = await families()
    assert {family for _, family in queried(RUNBOOK, known)} <= known.keys()


def test_every_alert_says_what_it_is_about_and_has_a_section_in_the_runbook() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [rule["alert"] for rule in ALERTS]
    for rule in ALERTS:
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        assert all(rule["annotations"].values())
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))


def test_queries_are_balanced() -> None:
    for text in expressions():
        bare = re.sub(r'"[^"]*"', "", text)
        for opening, closing in ("()", "{}", "[]"):
            assert bare.count(opening) == bare.count(closing), text


def test_dashboard_is_laid_out_without_gaps_and_asks_the_chosen_data_source() -> None:
    assert DASHBOARD["schemaVersion"] >= 39
    assert {one["name"] for one in DASHBOARD["templating"]["list"]} == {"datasource", "pool"}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place: dict[str, Any] = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["description"]
            assert panel["targets"]
