"""What Helm makes of the chart: the recorded manifests, a clear sentence for values that cannot be, and `helm test`."""

import asyncio
import base64
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.kube import deployed
from tests.kube.deployed import CHART
from tests.service import a_service
from tools import chart
from voda.app.kubernetes.options import KubernetesOptions, read_options
from voda.auth.tokens import Authenticator
from voda.clock import SystemClock
from voda.cluster.kubernetes.state.job_annotations import RESUMERS
from voda.kinds.registry import KINDS
from voda.log.factory import sqlite_path

REPOSITORY = ("--set", "image.repository=registry.example.com/voda")
POSTGRESQL = (*REPOSITORY, "--set", "log.store=postgresql")


def golden(text: str) -> str:
    """Return what Helm rendered, without what is random, and with the names of long files in place of them."""
    for file in ("alerts.yaml", "dashboard.json"):
        for indent in ("    ", "  "):
            body = textwrap.indent((CHART / "files" / file).read_text("utf-8"), indent)
            text = text.replace(body, f"{indent}(files/{file})\n")
    return re.sub(r"^  secret: .*$", "  secret: (random)", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", deployed.NAMES)
def test_manifests_when_rendered_are_as_recorded(name: str, update_golden: bool) -> None:
    file = deployed.SETS / f"{name}.yaml"
    text = golden(deployed.template(name))
    if update_golden:
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8"), "`make chart` records them anew"


@pytest.mark.parametrize("name", deployed.NAMES)
def test_chart_when_linted_strictly_has_no_fault(name: str) -> None:
    said = deployed.helm("lint", "--strict", str(CHART), "-f", str(deployed.values(name)))
    assert said.returncode == 0, said.stdout + said.stderr


def test_values_and_readme_are_made_from_the_schema() -> None:
    pools = chart.schema()["properties"]["settings"]["properties"]["pools"]
    assert pools["additionalProperties"] == chart.pool_schema(), "`make chart` writes it"
    assert (CHART / "values.yaml").read_text("utf-8") == chart.values_yaml(), "`make chart` writes it"
    readme = (CHART / "README.md").read_text("utf-8")
    assert readme == chart.with_table(readme), "`make chart` writes it"


def described(part: Any, path: str = "") -> dict[str, str]:
    """Return the description of every value of a schema, those within settings included."""
    found = {}
    for name, value in part.get("properties", {}).items():
        if (where := f"{path}{name}") != "global":
            found[where] = value.get("description", "")
            found |= described(value, f"{where}.")
    return found


def test_schema_describes_every_value_and_refuses_unknown_ones() -> None:
    assert [path for path, text in described(chart.schema()).items() if not text.endswith(".")] == []
    assert chart.schema()["additionalProperties"] is False


def test_settings_of_the_schema_are_those_that_voda_reads_and_the_chart_does_not_set() -> None:
    everything = msgspec.to_builtins(KubernetesOptions())
    of_chart = {
        "log",
        "home",
        "listen",
        "access",
        "cluster.kinds",
        "cluster.userPolicy",
        "leader.election",
        "leader.namespace",
        "leader.name",
        "sharing.enabled",
        "sharing.rater",
        "sharing.claims",
    }
    read = {name for name, value in everything.items() if not isinstance(value, dict) or not value}
    read |= {f"{part}.{name}" for part, value in everything.items() if isinstance(value, dict) for name in value}
    read -= {path for path in read if path in of_chart or path.partition(".")[0] in of_chart}
    parts = {name for name, value in everything.items() if isinstance(value, dict) and value}
    assert set(described(chart.schema()["properties"]["settings"])) - parts == read
    assert chart.schema()["properties"]["kinds"]["items"]["enum"] == list(KINDS)


@pytest.mark.parametrize("name", deployed.NAMES)
def test_settings_when_rendered_are_read_by_voda(name: str, tmp_path: Path) -> None:
    (settings,) = [each for each in deployed.rendered(name) if each["metadata"]["name"].endswith("-settings")]
    (tmp_path / "voda.yaml").write_text(settings["data"]["voda.yaml"])
    options = read_options(tmp_path / "voda.yaml")
    # The container's VODA_LOG counts.
    assert (options.access.folder, options.log) == ("/etc/voda/access", "")
    assert options.api.url == f"http://{options.leader.name}.voda-system.svc:{options.listen.port}"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "image.repository is empty: expected the name of an image of voda that your nodes can pull"),
        ((*REPOSITORY, "--set", "replicas=2"), "replicas is 2, but log.store sqlite is a file that one replica alone"),
        (POSTGRESQL, "log.store is postgresql, but nothing says where it is: set log.existingSecret"),
        ((*POSTGRESQL, "--set", "log.url=nats://here"), "begins with postgresql:// or postgres://"),
        ((*REPOSITORY, "--set", "log.store=jetstream,log.url=postgresql://a"), "begins with nats:// or tls://"),
        ((*POSTGRESQL, "--set", "log.url=postgresql://a,log.existingSecret=b"), "both log.url and log.existingSecret"),
        ((*REPOSITORY, "--set", "log.existingSecret=b"), "log.store sqlite has no URL"),
        (
            (*REPOSITORY, "--set", f"access.existingSecret=b,access.adminToken={'x' * 32}"),
            "both access.existingSecret and access.adminToken are set",
        ),
        ((*REPOSITORY, "--set", "kinds={MPIJob},admissionPolicy=always"), "admissionPolicy is always, but it is for"),
        ((*REPOSITORY, "--set", "sharedClaims.resources=true"), "at '/sharedClaims'"),
        ((*REPOSITORY, "--set", "log.store=mysql"), r"at '/log/store': value must be one of 'sqlite', 'postgresql'"),
        ((*REPOSITORY, "--set", "replica=2"), r"additional properties 'replica' not allowed"),
        ((*REPOSITORY, "--set", "settings.cluster.pollLabel=a"), r"at '/settings/cluster'.*'pollLabel' not allowed"),
        (
            (*REPOSITORY, "--set", "settings.pools.a100.polcy=fifo"),
            r"at '/settings/pools/a100'.*'polcy' not allowed",
        ),
        (
            (*REPOSITORY, "--set", "settings.pools.a100.nodeGraceSeconds=-1"),
            r"at '/settings/pools/a100/nodeGraceSeconds': minimum: got -1, want 0",
        ),
        ((*REPOSITORY, "--set", "replicas=many"), r"at '/replicas': got string, want null or integer"),
        (
            (*REPOSITORY, "--set", "kinds={TFJob}"),
            r"at '/kinds/0': value must be one of 'Job', 'JobSet', 'MPIJob', 'PyTorchJob'",
        ),
        ((*REPOSITORY, "--set", "kinds=null"), "kinds is empty: .* Job, MPIJob and PyTorchJob, or JobSet beside Job"),
        ((*REPOSITORY, "--set", "kinds={JobSet}"), "a JobSet is resized by its Job: add Job to kinds"),
        ((*REPOSITORY, "--set", "kinds={JobSet,MPIJob}"), "kinds has JobSet without Job"),
        (
            (*REPOSITORY, "--set", "settings.cluster.gpuDeviceClasses={}"),
            r"at '/settings/cluster/gpuDeviceClasses/0': '' does not match",
        ),
        ((*REPOSITORY, "--set", "access.adminToken=guess"), r"at '/access/adminToken'"),
        ((*REPOSITORY, "--kube-version", "1.29.4"), r"chart requires kubeVersion: >=1.30.0-0"),
    ],
)
def test_values_that_cannot_be_are_refused_in_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = deployed.helm("template", "voda", str(CHART), *arguments)
    assert done.returncode != 0
    assert re.search(sentence, done.stderr), done.stderr


@pytest.mark.parametrize(
    ("store", "url"),
    [
        ("postgresql", "postgresql://voda@db/voda"),
        ("postgresql", "postgres://voda@db/voda"),
        ("jetstream", "nats://nats:4222/voda"),
        ("jetstream", "tls://nats:4222/voda"),
    ],
)
def test_url_of_a_log_that_voda_takes_is_taken_and_reaches_it(store: str, url: str) -> None:
    assert sqlite_path(url) is None
    made = deployed.rendered("sqlite", "--set", f"log.store={store},log.url={url}")
    (secret,) = [each for each in made if each["kind"] == "Secret" and each["metadata"]["name"] == "voda-log"]
    assert base64.b64decode(secret["data"]["url"]).decode() == url


def groups_of(*arguments: str) -> set[str]:
    """Return the API groups of all rules of the ClusterRoles."""
    roles = [each for each in deployed.rendered("sqlite", *arguments) if each["kind"] == "ClusterRole"]
    return {group for role in roles for rule in role["rules"] for group in rule["apiGroups"]}


def test_rights_to_devices_and_claims_go_with_the_device_classes() -> None:
    assert "resource.k8s.io" in groups_of()
    assert "resource.k8s.io" in groups_of("--set", "settings.cluster.gpuDeviceClasses={gpu.example.com}")
    without = groups_of("--set-json", "settings.cluster.gpuDeviceClasses=[]")
    assert without == groups_of() - {"resource.k8s.io"}


def test_policy_for_jobs_when_left_to_the_cluster_is_there_where_its_version_is_served() -> None:
    policy = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
    kinds = {each["kind"] for each in deployed.rendered("sqlite", "--api-versions", policy)}
    assert {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} <= kinds


@pytest.mark.parametrize(
    ("url", "ports"),
    [
        ("postgresql://voda:p%40ss@db.example.com:6432/voda?sslmode=require", [6432]),
        ("postgresql://a:1@one:5433,two,three:5433/voda", [5433, 5432]),
        ("postgresql://[2001:db8::1]/voda", [5432]),
        ("postgresql://[2001:db8::1]:7000/voda", [7000]),
    ],
)
def test_policy_lets_voda_reach_the_ports_of_its_log(url: str, ports: list[int]) -> None:
    escaped = url.replace(",", r"\,")
    made = deployed.rendered("sqlite", "--set", "log.store=postgresql", "--set", f"log.url={escaped}")
    (policy,) = [each for each in made if each["kind"] == "NetworkPolicy"]
    assert [each["port"] for each in policy["spec"]["egress"][2]["ports"]] == ports


def test_policy_for_jobs_spares_the_owners_that_voda_spares() -> None:
    made = deployed.rendered("everything")
    (policy,) = [each for each in made if each["kind"] == "MutatingAdmissionPolicy"]
    conditions = {each["name"]: each["expression"] for each in policy["spec"]["matchConditions"]}
    (spared,) = re.findall(r"owner.kind in (\[.*?\])", conditions["not-of-a-resuming-owner"])
    assert yaml.safe_load(spared) == [*RESUMERS]


def test_monitor_finds_the_service_by_its_labels_and_port_and_rules_are_the_alerts() -> None:
    made = {manifest["kind"]: manifest for manifest in deployed.rendered("everything")}
    service, monitor = made["Service"], made["ServiceMonitor"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text("utf-8"))
    assert made["PrometheusRule"]["spec"] == alerts
    assert made["PrometheusRule"]["metadata"]["labels"]["release"] == "kube-prometheus-stack"


async def ended(url: str, token: str, command: list[str]) -> tuple[int | None, str]:
    """Return the exit status and the output of a container's command that asks the voda at this address."""
    told = [word.replace("http://voda.voda-system.svc:8470", url) for word in command]
    environment = {"PATH": "/usr/bin:/bin", "VODA_SERVER": url, "VODA_TOKEN": token}
    process = await asyncio.create_subprocess_exec(
        *told, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_pod_of_helm_test_when_run_asks_with_the_token_that_the_chart_made(tmp_path: Path) -> None:
    made = [each for each in yaml.safe_load_all(deployed.template("sqlite")) if each]
    (access,) = [each for each in made if each["kind"] == "Secret"]
    (pod,) = [each for each in made if each["kind"] == "Pod"]
    for name, value in access["data"].items():
        (tmp_path / name).write_bytes(base64.b64decode(value))
    ready, jobs = pod["spec"]["initContainers"][0], pod["spec"]["containers"][0]
    asks = [sys.executable, *ready["command"][1:], *ready["args"]]
    lists = [str(Path(sys.executable).with_name("voda")), *jobs["args"]]
    token = (tmp_path / "admin.token").read_text()
    async with a_service(access=Authenticator.mounted(tmp_path, SystemClock())) as service:
        assert await ended(service.url, token, asks) == (0, "ready\n")
        status, said = await ended(service.url, token, lists)
        assert (status, "no live job" in said) == (0, True)
        assert (await ended(service.url, "wrong", lists))[0] != 0
    assert (await ended(service.url, token, asks))[0] != 0
