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

import msgspec
import pytest
import yaml
from msgspec.structs import replace
from packaging.requirements import Requirement

from tests.needs import missing
from tests.service import a_backend
from voda import config
from voda.api.routes.service import ServiceRoutes
from voda.app.kubernetes.options import KubernetesOptions, read_options

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUSTOMIZE = DEPLOY / "kustomize"
RULE = KUSTOMIZE / "components" / "prometheus-operator" / "rule.yaml"
HEAD_OF_RULE = "".join(RULE.read_text("utf-8").partition("spec:\n")[:2])
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


def manifest(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((KUSTOMIZE / name).read_text("utf-8")))


def containers() -> list[dict[str, Any]]:
    base, postgres = manifest("base/deployment.yaml")[0], manifest("overlays/postgres/deployment.yaml")[0]
    return [*base["spec"]["template"]["spec"]["containers"], *postgres["spec"]["template"]["spec"]["initContainers"]]


def test_image_when_run_has_no_builder_in_it() -> None:
    *_, last = stages()
    assert [rest for rest in of(last, "COPY") if not rest.startswith("--from=builder /opt/voda ")] == []
    assert [rest for rest in of(last, "RUN") if "pip" in rest or "apt" in rest] == []
    assert all(of(stage, "ADD") == [] for stage in stages())


def test_image_when_run_is_of_a_user_that_is_a_number_and_not_root() -> None:
    *_, last = stages()
    (user,) = of(last, "USER")
    pod = manifest("base/deployment.yaml")[0]["spec"]["template"]["spec"]["securityContext"]
    assert user == f"{pod['runAsUser']}:{pod['runAsGroup']}"
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] >= 10_000


def test_image_when_told_to_end_hears_it_itself() -> None:
    *_, last = stages()
    # A shell in between would keep SIGTERM to itself.
    entry, command = json.loads(of(last, "ENTRYPOINT")[0]), json.loads(of(last, "CMD")[0])
    assert (entry, command) == (["voda"], containers()[0]["args"])


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


def test_version_of_image_label_and_overlays_is_that_of_voda() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"VERSION={version}" in [rest for stage in stages() for rest in of(stage, "ARG")]
    for overlay in ("sqlite", "postgres"):
        (image,) = manifest(f"overlays/{overlay}/kustomization.yaml")[0]["images"]
        assert image["newTag"] == version


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


@pytest.mark.parametrize("container", containers(), ids=lambda container: str(container["name"]))
def test_container_keeps_the_restricted_pod_security_standard(container: dict[str, Any]) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"].keys() == {"requests", "limits"}
    pod = manifest("base/deployment.yaml")[0]["spec"]["template"]["spec"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    labels = manifest("base/namespace.yaml")[0]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


async def test_probes_ask_for_paths_that_there_are() -> None:
    async with a_backend() as backend:
        paths = {operation.path for operation in ServiceRoutes(backend).operations() if not operation.roles}
    (voda, _) = containers()
    probes = [voda[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {probe["path"] for probe in probes} <= paths
    assert {probe["port"] for probe in probes} == {"http"}


def test_port_is_the_same_wherever_it_is_named() -> None:
    (voda, _) = containers()
    (service,) = manifest("base/service.yaml")[0]["spec"]["ports"]
    (ingress,) = manifest("base/network-policy.yaml")[0]["spec"]["ingress"]
    *_, last = stages()
    named = {
        manifest("base/voda.yaml")[0]["listen"]["port"],
        voda["ports"][0]["containerPort"],
        service["port"],
        ingress["ports"][0]["port"],
        int(of(last, "EXPOSE")[0]),
    }
    assert len(named) == 1


def test_what_is_written_and_read_lies_on_volumes() -> None:
    settings = manifest("base/voda.yaml")[0]
    (voda, _) = containers()
    mounted = {mount["mountPath"]: mount.get("readOnly", False) for mount in voda["volumeMounts"]}
    assert mounted == {
        settings["home"]: False,
        settings["access"]["folder"]: True,
        voda["args"][voda["args"].index("--config") + 1]: True,
        "/tmp": False,
    }


def test_rights_name_what_they_are_for_and_no_secret() -> None:
    rules = [
        rule
        for name in ("cluster-role", "role")
        for role in manifest(f"base/{name}.yaml")
        for rule in role.get("rules", ())
    ]
    assert rules
    for rule in rules:
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not {"secrets", "configmaps", "pods/exec", "serviceaccounts/token"} & set(rule["resources"])


def test_alerts_for_the_prometheus_operator_are_those_of_prometheus(update_golden: bool) -> None:
    alerts = (DEPLOY / "prometheus" / "alerts.yaml").read_text("utf-8")
    if update_golden:
        told = "".join(line for line in alerts.splitlines(keepends=True) if not line.startswith("#"))
        RULE.write_text(HEAD_OF_RULE + re.sub(r"^(?=.)", "  ", told, flags=re.MULTILINE), "utf-8")
    assert yaml.safe_load(RULE.read_text("utf-8"))["spec"] == yaml.safe_load(alerts)


@pytest.mark.parametrize("file", ["base/voda.yaml", "overlays/try/voda.yaml"])
def test_settings_of_the_manifests_are_read_and_let_replicas_share_their_tokens(file: str) -> None:
    options = read_options(KUSTOMIZE / file)
    assert options.access.folder == "/etc/voda/access"
    # The container's VODA_LOG counts, which the overlays set.
    assert options.log == ""


def test_settings_of_the_documents_are_the_defaults_and_complete(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "install-kubernetes.md").read_text("utf-8")
    (told,) = re.findall(r"```yaml\n(# my-voda/voda.yaml.*?)```", text, re.DOTALL)
    (tmp_path / "voda.yaml").write_text(told)
    read, default = read_options(tmp_path / "voda.yaml"), KubernetesOptions()
    assert replace(read, access=default.access) == default
    everything = msgspec.to_builtins(default)
    del everything["cluster"]["relistSeconds"]
    assert {key: set(value) if isinstance(value, dict) else None for key, value in yaml.safe_load(told).items()} == {
        key: set(value) if isinstance(value, dict) else None for key, value in everything.items()
    }


def test_commands_of_the_documents_name_files_that_there_are() -> None:
    text = (ROOT / "docs" / "install-kubernetes.md").read_text("utf-8")
    named = set(re.findall(r"(?<![\w/.-])(?:deploy|examples|voda)/[\w./-]*\w", text))
    assert len(named) > 10
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
