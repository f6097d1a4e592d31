"""Loads the address and credentials of an API server: from a kubeconfig, or from the service account of voda's pod.

Rules: credentials that expire are read again every minute (the token of a service account, a tokenFile, an exec
plugin whose token runs out); where that fails the old ones stay in use, for only the server knows whether they are
still valid. A client certificate that an exec plugin hands out is used as it was at the start.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, list_kube_config_contexts, load_kube_config
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader
from kubernetes_asyncio.config.kube_config import KubeConfigLoader

from voda.clock import Clock, SystemClock
from voda.domain.errors import ClusterUnavailable, InvalidInput

_log = logging.getLogger(__name__)
_RENEW_EVERY_S: Final = 60.0
_PLUGIN_S: Final = 30.0
"""How long an exec plugin may take: it may call an identity provider, but must not wait for a person."""
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_UNREADABLE: Final = (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, LookupError, AttributeError)
"""What kubernetes-asyncio throws at a kubeconfig that is not one."""


async def load_configuration(
    kubeconfig: Path | None, context: str = "", *, clock: Clock | None = None, account: Path = _ACCOUNT
) -> Configuration:
    """Return the configuration by a kubeconfig, or several joined as in KUBECONFIG; None = by this pod's service
    account.

    InvalidInput says why it cannot be used.
    """
    # Each Configuration is a copy of the process-wide default, which voda leaves alone.
    configuration = Configuration()
    # The certificates of many clusters lack extensions that newer Pythons insist on and that Go never asked for.
    configuration.disable_strict_ssl_verification = True
    if kubeconfig is not None:
        await _by_kubeconfig(configuration, kubeconfig, context, clock or SystemClock())
    elif context:
        raise InvalidInput(f"the context {context[:100]!r} needs a kubeconfig to be found in, and none is named")
    else:
        _by_service_account(configuration, account)
    return configuration


def namespace(kubeconfig: Path, context: str = "") -> str:
    """Return the namespace that a context of a kubeconfig names, as kubectl takes it; empty where it names none.

    Errors in the kubeconfig are left to `load_configuration`.
    """
    try:
        contexts, current = list_kube_config_contexts(os.pathsep.join(map(str, _files(kubeconfig))))
        named: list[Any] = [each for each in contexts if each["name"] == context] if context else [current]
        return str(named[0]["context"].get("namespace") or "")
    except (*_UNREADABLE, AssertionError, InvalidInput):
        return ""


def _by_service_account(configuration: Configuration, account: Path) -> None:
    try:
        InClusterConfigLoader(str(account / "token"), str(account / "ca.crt")).load_and_set(configuration)
    except (ConfigException, OSError) as wrong:
        raise InvalidInput(
            f"there is no service account of a pod to reach Kubernetes with ({_text(wrong)}): name a kubeconfig"
            " (--kubeconfig or KUBECONFIG), or run voda in the cluster"
        ) from wrong
    # It is no coroutine, whatever its type says.
    renew: Any = configuration.refresh_api_key_hook

    async def renew_token(of: Configuration) -> None:
        try:
            renew(of)
        except ConfigException as wrong:
            raise ClusterUnavailable(f"the token of voda's service account cannot be used: {_text(wrong)}") from wrong

    configuration.refresh_api_key_hook = renew_token


async def _by_kubeconfig(configuration: Configuration, kubeconfig: Path, context: str, clock: Clock) -> None:
    files = _files(kubeconfig)
    try:
        async with asyncio.timeout(_PLUGIN_S):
            loader = await load_kube_config(
                config_file=os.pathsep.join(map(str, files)),
                context=context or None,
                client_configuration=configuration,
                # An identity provider may hand out a refresh token for one use: the file must get the next one.
                persist_config=all(os.access(each, os.W_OK) for each in files),
            )
    except TimeoutError as late:
        raise InvalidInput(
            f"the exec plugin that the kubeconfig {kubeconfig} names gave no credentials in {_PLUGIN_S:g} s"
        ) from late
    except (*_UNREADABLE, AssertionError) as wrong:
        raise InvalidInput(f"the kubeconfig {kubeconfig} cannot be used: {_text(wrong)}") from wrong
    if not str(configuration.host).startswith(("http://", "https://")):
        raise InvalidInput(
            f"the kubeconfig {kubeconfig} cannot be used: expected its server to be a URL, got {configuration.host!r}"
        )
    configuration.refresh_api_key_hook = _Renewal(loader, clock)


def _files(kubeconfig: Path) -> list[Path]:
    named = [Path(each).expanduser() for each in str(kubeconfig).split(os.pathsep) if each]
    files = [each for each in named if each.is_file()]
    if not files:
        raise InvalidInput(f"there is no kubeconfig {kubeconfig}: expected a file")
    return files


class _Renewal:
    """Renews a kubeconfig's credentials; called before every request, acts once a minute."""

    def __init__(self, loader: KubeConfigLoader, clock: Clock) -> None:
        self._loader = loader
        self._clock = clock
        self._due_at = clock.now() + _RENEW_EVERY_S

    async def __call__(self, configuration: Configuration) -> None:
        if self._clock.now() < self._due_at:
            return
        # Set first: requests that come while a plugin runs go on with the old token, good for minutes yet.
        self._due_at = self._clock.now() + _RENEW_EVERY_S
        try:
            async with asyncio.timeout(_PLUGIN_S):
                await self._loader.load_and_set(configuration)
        except (*_UNREADABLE, TimeoutError, AssertionError) as wrong:
            _log.warning("credentials not renewed error=%s", _text(wrong))


def _text(wrong: BaseException) -> str:
    return (" ".join(str(wrong).split())[:300] or type(wrong).__name__).rstrip(".")
