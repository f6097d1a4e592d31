"""Asks the API server whether a caller of the API may make what voda would make for them, with voda's own rights.

Rules: the caller's rights are those of the Kubernetes user of the same name (SubjectAccessReview), and of the group
`voda:users`; a right that cannot be asked for is one that the caller lacks; jobs are nobody's in voda's own namespace
and in those of the cluster's own.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Struct

from voda.auth.callers import Caller
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject
from voda.domain.errors import InvalidField, NotAllowed
from voda.domain.job import JobSpec
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.paths import api_path
from voda.manifests.parse import ParsedManifest
from voda.operator.authorization.pod_security import Level, violations
from voda.operator.authorization.pod_templates import pod_templates, secrets, service_accounts

GROUP: Final = "voda:users"
"""Of all callers whom voda knows as users."""
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_OF_CLUSTER: Final = "kube-"
_NAMESPACE: Final = "metadata.namespace"
_MOST_NAMES: Final = 16
"""Of Secrets, or of service accounts, that are asked for one by one; for more of them the right to all is needed."""
_MOST_VIOLATIONS: Final = 5
"""That one refusal spells out."""


class Right(Struct, frozen=True, kw_only=True):
    """A verb on a resource of a namespace, as RBAC has it."""

    verb: str
    group: str = ""
    resource: str
    subresource: str = ""
    name: str = ""
    """Empty: all of them."""

    def __str__(self) -> str:
        resource = "/".join(part for part in (self.resource, self.subresource) if part)
        return f"{self.verb} {resource}" + (f" {self.name[:80]!r}" if self.name else "")


class _ReviewStatus(Struct, frozen=True):
    allowed: bool = False


class _Review(Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class _NamespaceMetadata(Struct, frozen=True):
    labels: dict[str, str] = {}


class _Namespace(Struct, frozen=True):
    metadata: _NamespaceMetadata = _NamespaceMetadata()


@dataclass(frozen=True, kw_only=True)
class SubmitRights:
    """What callers may have voda make."""

    api: Api
    kind_of: Callable[[JobSpec], JobKind]
    own_namespace: str
    """Where voda's Secrets are; empty: outside of the cluster."""
    user_prefix: str = ""
    """Of Kubernetes' names of voda's users."""
    unlabelled: Level = "restricted"
    """Level of a namespace that has no label of Pod Security."""

    async def refuse_forbidden(self, parsed: ParsedManifest, caller: Caller) -> None:
        """Raise where a caller may not make a job's object, or pods as its templates ask for.

        Raises:
            NotAllowed: the namespace takes no jobs, or the caller lacks a right there.
            InvalidField: Pod Security forbids a field of a template, or there is no such namespace.
            ActionRefused: voda may not ask.
            ClusterUnavailable: try again.
        """
        namespace = parsed.spec.namespace
        if namespace == self.own_namespace or namespace.startswith(_OF_CLUSTER):
            raise NotAllowed(f"namespace {namespace} is the cluster's or voda's own: submit the job to another one")
        if caller.role == "admin":
            return
        kind = self.kind_of(parsed.spec)
        made = kind.new_object(parsed.spec, (), {})
        for right in _needed(kind, made, namespace):
            await self._refuse_without(right, namespace, caller)
        await self._refuse_insecure(made, namespace)

    async def _refuse_without(self, right: Right, namespace: str, caller: Caller) -> None:
        user = f"{self.user_prefix}{caller.user}"
        spec = {
            "user": user,
            "groups": [GROUP],
            "resourceAttributes": {"namespace": namespace, **msgspec.to_builtins(right)},
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        if not (await self.api.create(_REVIEWS, body, _Review)).status.allowed:
            raise NotAllowed(
                f"user {user} may not {right} in namespace {namespace}, which the job needs: ask an administrator of"
                f" the cluster, who may bind a role to the user or to the group {GROUP} (kubectl create rolebinding"
                f" {caller.user} -n {namespace} --clusterrole=edit --user={user})"
            )

    async def _refuse_insecure(self, made: Mapping[str, Any], namespace: str) -> None:
        level = await self._level(namespace)
        # A manifest may have a megabyte of containers.
        found = await asyncio.to_thread(_violations, made, level)
        if found:
            spelled = "; ".join(f"{field}: {message}" for field, message in list(found.items())[:_MOST_VIOLATIONS])
            more = "; and others" if len(found) > _MOST_VIOLATIONS else ""
            raise InvalidField(
                next(iter(found)),
                f"{spelled}{more} (Pod Security {level!r} of namespace {namespace}: mend the template, or ask an"
                f" administrator for a namespace with another label {_ENFORCE})",
            )

    async def _level(self, namespace: str) -> Level:
        found = await self.api.get(api_path("v1", "namespaces", name=namespace), _Namespace)
        if found is None:
            raise InvalidField(_NAMESPACE, f"{_NAMESPACE}: there is no namespace {namespace!r}: create it first")
        match found.metadata.labels.get(_ENFORCE):
            case None:
                return self.unlabelled
            case "privileged" | "baseline" as level:
                return level
        # As the API server takes a label that says nothing it knows.
        return "restricted"


def _violations(made: Mapping[str, Any], level: Level) -> Mapping[str, str]:
    """Return field -> what is wrong with it, of the first fields that a level forbids."""
    every = (each for path, template in pod_templates(made) for each in violations(template, path, level))
    found: dict[str, str] = {}
    for each in islice(every, 2 * _MOST_VIOLATIONS + 1):
        # A field may be wrong by both levels.
        found.setdefault(each.field, each.message)
    return found


def _needed(kind: JobKind, made: Mapping[str, Any], namespace: str) -> Iterator[Right]:
    """Yield the rights that somebody needs who makes an object, what belongs to it, and all that its pods use."""
    yield _creation(kind.path(namespace))
    for collection, _ in kind.companions(msgspec.convert(made, JobObject)):
        yield _creation(collection)
    templates = [template for _, template in pod_templates(made)]
    for name in _named(name for template in templates for name in secrets(template)):
        yield Right(verb="get", resource="secrets", name=name)
    for name in _named(name for template in templates for name in service_accounts(template)):
        yield Right(verb="create", resource="serviceaccounts", subresource="token", name=name)


def _creation(collection: str) -> Right:
    """Return the right to create objects at a path such as /apis/batch/v1/namespaces/vision/jobs."""
    root, group, *_, resource = collection.strip("/").split("/")
    return Right(verb="create", group=group if root == "apis" else "", resource=resource)


def _named(names: Iterator[str]) -> Collection[str]:
    found = sorted(set(names))
    return found if len(found) <= _MOST_NAMES else [""]
