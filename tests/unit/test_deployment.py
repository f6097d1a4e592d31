"""Claims about deploy/ that need no cluster: what the image is built from, and what its pods may do."""

import json
import re
import shutil
import subprocess
import tomllib
from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.needs import missing
from tests.service import a_backend
from voda import config
from voda.api.server import operations

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "voda"
RENDERED = ROOT / "tests" / "kube" / "chart"
SETS = ("everything", "jetstream", "postgresql", "sqlite", "try")
PINNED = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)


def stages() -> list[list[tuple[str, str]]]:
    """Return the stages of the Dockerfile: each a list of (instruction, the rest)."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = [line.split(None, 1) for line in re.sub(r"\\\n\s*", " ", text).splitlines() if line.strip()]
    made: list[list[tuple[str, str]]] = []
    for word, rest in lines:
        if word == "FROM":
            made.append([])
        if made:
            made[-1].append((word, rest))
    return made


def of(stage: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for instruction, rest in stage if instruction == word]


def manifests(kind: str, name: str = "sqlite") -> list[dict[str, Any]]:
    """Return what Helm renders of a kind; tests/integration/kubernetes/test_chart.py sees to it that it still does."""
    made = yaml.safe_load_all((RENDERED / f"{name}.yaml").read_text("utf-8"))
    return [each for each in made if each and each["kind"] == kind]


def pod_specs(name: str) -> list[dict[str, Any]]:
    """Return the specs of all pods that an installation has, that of `helm test` included."""
    (deployment,) = manifests("Deployment", name)
    return [deployment["spec"]["template"]["spec"], *(each["spec"] for each in manifests("Pod", name))]


def voda() -> dict[str, Any]:
    """Return the container of voda itself."""
    (container,) = pod_specs("sqlite")[0]["containers"]
    return dict(container)


def settings() -> dict[str, Any]:
    """Return the settings file that voda reads."""
    (found,) = [each for each in manifests("ConfigMap") if each["metadata"]["name"] == "voda-settings"]
    return dict(yaml.safe_load(found["data"]["voda.yaml"]))


def test_image_when_run_has_no_builder_in_it() -> None:
    *_, last = stages()
    assert [rest for rest in of(last, "COPY") if not rest.startswith("--from=builder /opt/voda ")] == []
    assert [rest for rest in of(last, "RUN") if "pip" in rest or "apt" in rest] == []
    assert all(of(stage, "ADD") == [] for stage in stages())


def test_image_when_run_is_of_a_user_that_is_a_number_and_not_root() -> None:
    *_, last = stages()
    (user,) = of(last, "USER")
    pod = pod_specs("sqlite")[0]["securityContext"]
    assert user == f"{pod['runAsUser']}:{pod['runAsGroup']}"
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] >= 10_000


def test_image_when_told_to_end_hears_it_itself() -> None:
    *_, last = stages()
    # A shell in between would keep SIGTERM to itself.
    entry, command = json.loads(of(last, "ENTRYPOINT")[0]), json.loads(of(last, "CMD")[0])
    assert (entry, command) == (["voda"], voda()["args"])


def test_image_when_built_installs_nothing_whose_hash_is_not_known() -> None:
    installs = [
        step for stage in stages() for rest in of(stage, "RUN") for step in rest.split("&&") if " install " in step
    ]
    fetching = [step for step in installs if "pip" in step and "--no-index" not in step]
    assert len(fetching) == 2
    assert all("--require-hashes" in step and "--only-binary :all:" in step for step in fetching)


def test_backend_in_its_lock_is_that_of_the_project_and_as_in_the_lock_of_developers() -> None:
    locked = dict(PINNED.findall((DEPLOY / "build.lock").read_text("utf-8")))
    theirs = dict(PINNED.findall((ROOT / "requirements-dev.lock").read_text("utf-8")))
    assert {name: theirs[name] for name in locked} == locked
    for required in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]:
        requirement = Requirement(required)
        assert locked[requirement.name] in requirement.specifier


def test_version_of_image_label_and_chart_is_that_of_voda() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"VERSION={version}" in [rest for stage in stages() for rest in of(stage, "ARG")]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == (version, version)


@pytest.mark.parametrize(
    "path", [".git/config", "out/kube/etcd", "voda.db", ".venv/bin/python", "tests/postgres.py", ".env"]
)
def test_context_of_a_build_leaves_out_what_is_not_named(path: str) -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    first, *others = [line for line in lines if line and not line.startswith("#")]
    assert first == "*"
    let_in = [line.removeprefix("!") for line in others if line.startswith("!")]
    assert not any(fnmatch(path, name) or path.startswith(f"{name}/") for name in let_in)


def test_context_of_a_build_has_all_that_is_copied() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    copied = {name for rest in of(stages()[0], "COPY") for name in rest.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("name", SETS)
def test_containers_keep_the_restricted_pod_security_standard(name: str) -> None:
    for pod in pod_specs(name):
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert container["resources"].keys() == {"requests", "limits"}
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


async def test_probes_ask_for_paths_that_there_are() -> None:
    async with a_backend() as backend:
        paths = {operation.path for operation in operations(backend) if not operation.roles}
    probes = [voda()[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {probe["path"] for probe in probes} <= paths
    assert {probe["port"] for probe in probes} == {"http"}


def test_port_is_the_same_wherever_it_is_named() -> None:
    ((service,),) = [each["spec"]["ports"] for each in manifests("Service")]
    ((ingress,),) = [each["spec"]["ingress"] for each in manifests("NetworkPolicy")]
    *_, last = stages()
    named = {
        settings()["listen"]["port"],
        voda()["ports"][0]["containerPort"],
        service["port"],
        ingress["ports"][0]["port"],
        int(of(last, "EXPOSE")[0]),
    }
    assert len(named) == 1


def test_what_is_written_and_read_lies_on_volumes() -> None:
    read, args = settings(), voda()["args"]
    mounted = {mount["mountPath"]: mount.get("readOnly", False) for mount in voda()["volumeMounts"]}
    assert mounted == {
        read["home"]: False,
        read["access"]["folder"]: True,
        args[args.index("--config") + 1]: True,
        "/tmp": False,
    }


@pytest.mark.parametrize("name", SETS)
def test_rights_name_what_they_are_for_and_no_secret(name: str) -> None:
    roles = [*manifests("ClusterRole", name), *manifests("Role", name)]
    rules = [rule for role in roles for rule in role["rules"]]
    assert rules
    for rule in rules:
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not {"secrets", "configmaps", "pods/exec", "serviceaccounts/token"} & set(rule["resources"])


def test_commands_of_the_documents_name_files_that_there_are() -> None:
    text = (ROOT / "docs" / "install-kubernetes.md").read_text("utf-8")
    named = set(re.findall(r"(?<![\w/.-])(?:deploy|examples|voda)/[\w./-]*\w", text))
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []


def unit(name: str) -> dict[str, dict[str, str]]:
    """Return the sections of a unit of systemd; no key of ours stands there twice."""
    parser = ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd tells Type from type
    parser.read_string((DEPLOY / "systemd" / name).read_text("utf-8"))
    return {section: dict(parser[section]) for section in parser.sections()}


@pytest.mark.parametrize("name", ["voda.service", "voda-system.service"])
def test_unit_when_it_stops_leaves_the_jobs_training(name: str) -> None:
    assert unit(name)["Service"]["KillMode"] == "process"


def test_unit_of_the_machine_serves_all_users_at_the_usual_places_and_lets_them_through() -> None:
    service = unit("voda-system.service")["Service"]
    assert service["ExecStart"].split()[1:] == ["up"]
    assert service["Environment"] == f"VODA_HOME={config.MACHINE_HOME}"
    assert (service["StateDirectory"], service["StateDirectoryMode"]) == (config.MACHINE_HOME.name, "0711")
    assert f"/run/{service['RuntimeDirectory']}" == str(config.MACHINE_SOCKET.parent)
    assert (service["RuntimeDirectoryMode"], service["Delegate"]) == ("0755", "yes")
    # Without a user of its own it runs as root, which alone can give jobs to their users.
    assert not {"User", "DynamicUser", "NoNewPrivileges", "PrivateTmp", "ProtectHome"} & set(service)
    assert service["OOMPolicy"] == "continue"


def test_unit_of_the_machine_is_one_that_systemd_takes(tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        missing("systemd-analyze is not installed")
    text = (DEPLOY / "systemd" / "voda-system.service").read_text("utf-8")
    # Its own program need not be installed here.
    (tmp_path / "voda.service").write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    verified = subprocess.run(
        [analyze, "verify", str(tmp_path / "voda.service")], capture_output=True, text=True, timeout=60, check=False
    )
    # A key that an older systemd does not know is ignored.
    wrong = [line for line in verified.stderr.splitlines() if "DelegateSubgroup" not in line]
    assert (verified.returncode, wrong) == (0, [])
