"""Refuses values with which no process could start, before the job exists; and the checks that kinds share.

Rule: only what would fail later is refused here; what is merely ignored gets a warning.
"""

from collections.abc import Sequence
from typing import Final

from voda.domain.errors import InvalidField
from voda.domain.job import MOST_REPLICAS
from voda.kinds.base import JobManifest
from voda.kinds.pod_template import ContainerTemplate, RoleTemplate, RunPolicyFields

BIGGEST: Final = 2**31 - 1
CLEAN_POD_POLICIES: Final = ("None", "Running", "All")


def refuse_unusable(job: JobManifest) -> None:
    """Raise InvalidField on the first field with which no process could start."""
    job.check()
    for name, role in job.roles.items():
        _check_role(job, name, role)
    _check_run_policy(job.spec.run_policy)


def refuse_outside(field: str, value: int | None, least: int, most: int) -> None:
    """Raise InvalidField where a value is there and out of bounds."""
    if value is not None and not least <= value <= most:
        raise InvalidField(field, f"{field}: expected {least} to {most}, got {value}")


def refuse_other(field: str, value: str | None, allowed: Sequence[str]) -> None:
    """Raise InvalidField where a value is there and none of those allowed."""
    if value is not None and value not in allowed:
        raise InvalidField(field, f"{field}: expected one of {', '.join(allowed)}, got {value[:60]!r}")


def refuse_several(path: str, role: RoleTemplate | None) -> None:
    """Raise InvalidField where a role that has one pod asks for another number."""
    if role is not None and role.replicas not in (None, 1):
        field = f"{path}.replicas"
        raise InvalidField(field, f"{field}: expected 1, got {role.replicas}")


def _check_role(job: JobManifest, name: str, role: RoleTemplate) -> None:
    path = job.path(name)
    refuse_outside(f"{path}.replicas", role.replicas, 1, MOST_REPLICAS)
    refuse_other(f"{path}.restartPolicy", role.restart_policy, job.restart_policies)
    pod = role.template.spec
    grace_s = pod.termination_grace_period_seconds
    refuse_outside(f"{path}.template.spec.terminationGracePeriodSeconds", grace_s, 0, BIGGEST)
    for index, container in enumerate(pod.containers):
        if container.env:
            _check_env(f"{path}.template.spec.containers[{index}].env", container)


def _check_env(path: str, container: ContainerTemplate) -> None:
    for index, variable in enumerate(container.env or ()):
        if not variable.name or "=" in variable.name or "\0" in variable.name:
            field = f"{path}[{index}].name"
            raise InvalidField(field, f"{field}: expected a name without '=', got {variable.name[:60]!r}")
        if variable.value and variable.value_from is not None:
            field = f"{path}[{index}].valueFrom"
            raise InvalidField(field, f"{field}: {variable.name[:60]} has a value too: keep one of them")


def _check_run_policy(policy: RunPolicyFields | None) -> None:
    if policy is None:
        return
    refuse_outside("spec.runPolicy.backoffLimit", policy.backoff_limit, 0, BIGGEST)
    refuse_outside("spec.runPolicy.activeDeadlineSeconds", policy.active_deadline_seconds, 1, BIGGEST)
    refuse_outside("spec.runPolicy.ttlSecondsAfterFinished", policy.ttl_seconds_after_finished, 0, BIGGEST)
    refuse_other("spec.runPolicy.cleanPodPolicy", policy.clean_pod_policy, CLEAN_POD_POLICIES)
