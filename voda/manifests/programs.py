"""What each role of a job runs, with which environment, and how its failures are treated.

Rule: the operators' defaults are filled in here; a manifest that `parse` accepted fails here only where the variables
of the place it runs at make it too long.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from voda.domain.errors import InvalidField
from voda.kinds.base import FieldWarning, JobManifest, role_mappings, run_policy, run_policy_path
from voda.kinds.pod_template import DEFAULT_BACKOFF_LIMIT, ContainerTemplate, EnvVar
from voda.manifests.expansion import Expansion
from voda.programs.program_manifest import ENV_FILE, LAUNCHER, NICE, WORKING_DIR

_DEFAULT_GRACE_S = 30.0

DEFAULT_NICE: Final = 5
"""So that voda, and whoever works on the machine, get the CPUs first."""
MOST_NICE: Final = 19
RESTARTABLE: Final = "voda.dev/restartable"
"""Annotation: `never` or `always`, whether the program may begin a second time."""
_RESTARTABLE_PATH: Final = f"metadata.annotations[{RESTARTABLE}]"

POD_NAME = "VODA_POD_NAME"
"""Variable with the name of the replica's pod, such as digits-worker-0, which fieldRef metadata.name stands for."""


class ReplicaProgram(Struct, frozen=True, kw_only=True):
    """What one replica runs, before `$(VAR)` is expanded (see `expand_program`)."""

    role: str
    """launcher, worker or master."""
    argv: tuple[str, ...]
    """command, then args; empty: the image's own, which cannot be known."""
    env: tuple[tuple[str, str], ...] = ()
    """In the manifest's order: a later value may refer to an earlier one."""
    working_dir: str = ""
    grace_s: float = _DEFAULT_GRACE_S
    """terminationGracePeriodSeconds."""


class FailurePolicy(Struct, frozen=True, kw_only=True):
    """When a job is tried again and when it has failed."""

    backoff_limit: int
    """Restarts after failures before the job has failed."""
    active_deadline_s: float | None = None
    restart_policy: Mapping[str, str] = {}
    """role -> Never, OnFailure, Always or ExitCode."""
    is_restartable: bool = True
    """Whether its program may begin a second time, for whatever reason."""


def program(job: JobManifest, role: str) -> ReplicaProgram | None:
    """Return what a replica of a role (launcher, worker, master) runs on one machine; None: there is no such role."""
    name = role.capitalize()
    template = job.roles.get(name)
    if template is None:
        return None
    _, container = job.main_container(name)
    grace_s = template.template.spec.termination_grace_period_seconds
    return ReplicaProgram(
        role=role,
        argv=(container.command or ()) + (container.args or ()),
        env=tuple(
            (name, value)
            for name, value in _env_pairs(container, job.metadata.namespace or "default")
            if name not in job.cluster_variables
        ),
        working_dir=container.working_dir or "",
        grace_s=_DEFAULT_GRACE_S if grace_s is None else float(grace_s),
    )


def expand_program(program: ReplicaProgram, base: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command line (empty where the manifest leaves it to the image) and the environment of one process.

    The environment is `base` with the program's variables, which may refer to it, and replace those of the same name.
    Without a VODA_POD_NAME in `base`, it is made from VODA_JOB_NAME and the role.

    Raises:
        InvalidField: expanded, it is more than the kernel gives to a process.
    """
    pod_name = f"{base.get('VODA_JOB_NAME', 'job')}-{program.role}"
    expansion = Expansion({POD_NAME: pod_name, **base})
    for name, value in program.env:
        expansion.set_variable(name, value, f"variable {name[:60]}")
    argv = tuple(expansion.word(word, f"word {place} of its command") for place, word in enumerate(program.argv, 1))
    return argv, expansion.env


def refuse_large_expansions(job: JobManifest) -> None:
    """Raise InvalidField where a container's environment and command are more than the kernel gives to a process."""
    for role, replica in job.roles.items():
        for index in range(len(replica.template.spec.containers)):
            expand_container(job, role, index)


def expand_container(job: JobManifest, role: str, index: int) -> Mapping[str, str]:
    """Return the variables of a container, expanded by themselves; raises what `refuse_large_expansions` does."""
    path = f"{job.path(role)}.template.spec.containers[{index}]"
    container = job.roles[role].template.spec.containers[index]
    expansion = Expansion({})
    for place, variable in enumerate(container.env or ()):
        if (value := known_value(variable, job.metadata.namespace or "default")) is not None:
            expansion.set_variable(variable.name, value, f"{path}.env[{place}].value")
    for field, words in (("command", container.command), ("args", container.args)):
        for place, word in enumerate(words or ()):
            expansion.word(word, f"{path}.{field}[{place}]")
    return expansion.env


def is_restartable(job: JobManifest) -> bool:
    """Return whether a program may begin a second time; raises InvalidField where the annotation is another word."""
    word = (job.metadata.annotations or {}).get(RESTARTABLE, "always")
    if word not in ("always", "never"):
        raise InvalidField(_RESTARTABLE_PATH, f"{_RESTARTABLE_PATH}: expected never or always, got {word[:60]!r}")
    return word == "always"


def checked_restarts(job: JobManifest, spec: Mapping[str, Any]) -> bool:
    """Return whether a program may begin a second time; `spec` is as the user wrote it.

    Raises:
        InvalidField: it may not, and a restartPolicy says that it does.
    """
    if is_restartable(job):
        return True
    for role, mapping in role_mappings(job, spec).items():
        for field, holder in (("", mapping), (".template.spec", mapping["template"]["spec"])):
            policy = holder.get("restartPolicy") if isinstance(holder, Mapping) else None
            if policy not in (None, "Never"):
                path = f"{job.path(role)}{field}.restartPolicy"
                raise InvalidField(path, f"{path}: expected Never, as {RESTARTABLE} is never, got {str(policy)[:60]!r}")
    return False


def unused_limits(job: JobManifest) -> Iterator[FieldWarning]:
    """Yield a warning where tries are limited to more than one, and there is only one."""
    limit = run_policy(job).backoff_limit
    if not limit:
        return
    field = f"{run_policy_path(job)}.backoffLimit"
    if not is_restartable(job):
        yield FieldWarning(field=field, message=f"not used: as {RESTARTABLE} is never, there is one try")
    elif has_one_try(job):
        yield FieldWarning(field=field, message="not used: with restartPolicy Never, there is one try")


def has_one_try(job: JobManifest) -> bool:
    """Return whether a program that fails is not started again, as the restartPolicy of all roles says."""
    policies = {role.restart_policy or job.default_restart_policy(name) for name, role in job.roles.items()}
    return not job.always_retries and policies == {"Never"}


def failure_policy(job: JobManifest) -> FailurePolicy:
    """Return how failures are treated."""
    policy = run_policy(job)
    restart_policy = {
        name.lower(): role.restart_policy or job.default_restart_policy(name) for name, role in job.roles.items()
    }
    if job.always_retries:
        # That of a pod: its Job makes others.
        restart_policy |= dict.fromkeys((name.lower() for name in job.local_roles if name in job.roles), "OnFailure")
    may_begin_again = is_restartable(job)
    if not may_begin_again:
        restart_policy = dict.fromkeys(restart_policy, "Never")
    is_final = has_one_try(job) or not may_begin_again
    limit = DEFAULT_BACKOFF_LIMIT if policy.backoff_limit is None else policy.backoff_limit
    deadline_s = policy.active_deadline_seconds
    return FailurePolicy(
        backoff_limit=0 if is_final else limit,
        active_deadline_s=None if deadline_s is None else float(deadline_s),
        restart_policy=restart_policy,
        is_restartable=may_begin_again,
    )


def working_dir_annotation(job: JobManifest) -> str:
    """Return the folder that the annotation voda.dev/working-dir names; empty without one."""
    return (job.metadata.annotations or {}).get(WORKING_DIR, "")


def nice_annotation(job: JobManifest) -> int:
    """Return how much a job's programs give way for the CPUs of one machine; raises InvalidField."""
    text = (job.metadata.annotations or {}).get(NICE, str(DEFAULT_NICE))
    if not text.isascii() or not text.isdigit() or len(text) > 2 or int(text) > MOST_NICE:
        field = f"metadata.annotations[{NICE}]"
        raise InvalidField(field, f"{field}: expected 0 to {MOST_NICE}, got {text[:40]!r}")
    return int(text)


def is_plain(manifest: Mapping[str, Any]) -> bool:
    """Return whether the manifest of a job says that its program has one worker (voda.dev/launcher: plain)."""
    metadata = manifest.get("metadata") or {}
    return (metadata.get("annotations") or {}).get(LAUNCHER) == "plain"


def env_files_annotation(job: JobManifest) -> Mapping[str, str]:
    """Return variable -> file, as the annotations voda.dev/env-from-file.NAME say."""
    named = (job.metadata.annotations or {}).items()
    return {name.removeprefix(ENV_FILE): path for name, path in named if name.startswith(ENV_FILE)}


def _env_pairs(container: ContainerTemplate, namespace: str) -> tuple[tuple[str, str], ...]:
    """Return the variables of a container whose values can be known."""
    found = ((each.name, known_value(each, namespace)) for each in container.env or ())
    return tuple((name, value) for name, value in found if value is not None)


def known_value(variable: EnvVar, namespace: str) -> str | None:
    """Return a variable's value before expansion; None where it lies in a secret or another object."""
    if variable.value_from is None:
        return variable.value or ""
    field = variable.value_from.field_ref
    known = {"metadata.namespace": namespace, "metadata.name": f"$({POD_NAME})"}
    return known.get(field.field_path) if field is not None else None
