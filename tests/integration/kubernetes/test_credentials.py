"""An API server is reached by whatever a kubeconfig or a pod's service account holds, and what is wrong is told."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.control_plane import ADMIN, ControlPlane
from voda.clock import VirtualClock
from voda.domain.errors import ClusterUnavailable, InvalidInput
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.credentials import load_configuration, namespace

EXEC = "client.authentication.k8s.io/v1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "a: [",
        "apiVersion: v1",
        "clusters: 7",
        "current-context: x\ncontexts: []\nclusters: []\nusers: []",
        "\0",
    ],
)
async def test_a_kubeconfig_that_is_none_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=f"^the kubeconfig {path} cannot be used: ") as wrong:
        await load_configuration(path)
    assert "\n" not in str(wrong.value)


async def test_what_is_not_there_is_named(control_plane: ControlPlane, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no kubeconfig"):
        await load_configuration(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="prod"):
        await load_configuration(control_plane.kubeconfig(), "prod")
    with pytest.raises(InvalidInput, match="needs a kubeconfig"):
        await load_configuration(None, "prod")
    with pytest.raises(InvalidInput, match="no service account"):
        await load_configuration(None, account=tmp_path)


def test_a_namespace_is_that_of_the_context(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    contexts = [
        {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "voda-system"}},
        {"name": "there", "context": {"cluster": "c", "user": "u"}},
    ]
    known = {"clusters": [{"name": "c", "cluster": {}}], "users": [{"name": "u", "user": {}}]}
    path.write_text(yaml.safe_dump({**known, "contexts": contexts, "current-context": "here"}))
    assert (namespace(path), namespace(path, "here"), namespace(path, "there")) == ("voda-system", "voda-system", "")
    assert (namespace(path, "nowhere"), namespace(tmp_path / "none")) == ("", "")
    path.write_text("[")
    assert namespace(path) == ""


async def test_a_service_account_is_used_and_its_token_read_again(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(control_plane.port))
    (tmp_path / "token").write_text(ADMIN)
    (tmp_path / "ca.crt").write_bytes(control_plane.certificate.read_bytes())
    assert await _major(Api(await load_configuration(None, account=tmp_path))) == "1"


async def test_a_plugins_token_is_used_and_renewed_every_minute(control_plane: ControlPlane, tmp_path: Path) -> None:
    clock = VirtualClock(1000.0)
    token = tmp_path / "token"
    token.write_text("stale")
    said = '{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"%s"}}'
    plugin = {"apiVersion": EXEC, "command": "sh", "args": ["-c", f"printf '{said}' {EXEC} $(cat {token})"]}
    api = Api(await load_configuration(_with_user(control_plane, tmp_path, {"exec": plugin}), clock=clock))
    with pytest.raises(ClusterUnavailable, match="401"):
        await api.get("/api/v1/namespaces/default", dict)
    token.write_text(ADMIN)
    clock.move_to(1060.0)
    assert await _major(api) == "1"


async def test_a_plugin_that_fails_at_first_is_told_and_later_on_survived(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    plugin = {"apiVersion": EXEC, "command": "sh", "args": ["-c", "echo no >&2; exit 3"]}
    with pytest.raises(InvalidInput, match=r"process returned 3\. no$"):
        await load_configuration(_with_user(control_plane, tmp_path, {"exec": plugin}))

    clock = VirtualClock(1000.0)
    token = tmp_path / "token"
    token.write_text(ADMIN)
    api = Api(await load_configuration(_with_user(control_plane, tmp_path, {"tokenFile": str(token)}), clock=clock))
    await asyncio.to_thread(token.unlink)
    clock.move_to(1060.0)
    assert await _major(api) == "1"


async def test_a_certificate_that_is_none_is_refused(control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "client.crt").write_text("not a certificate")
    user = {"client-certificate": str(tmp_path / "client.crt"), "client-key": str(tmp_path / "client.crt")}
    with pytest.raises(InvalidInput, match="the certificates for the API server cannot be used"):
        await Api.open(_with_user(control_plane, tmp_path, user))


def _with_user(plane: ControlPlane, folder: Path, user: dict[str, Any]) -> Path:
    config = yaml.safe_load(plane.kubeconfig().read_text())
    config["users"][0]["user"] = user
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def _major(api: Api) -> str:
    """Return what only somebody who is known is told, and close."""
    try:
        assert await api.get("/api/v1/namespaces/kube-system", dict) is not None
        found = await api.get("/version", dict)
        assert found is not None
        return str(found["major"])
    finally:
        await api.close()
