"""The environment of a container: which values can be known before its pod is there, and Kubernetes' `$(VAR)` rules.

Rule: a reference is replaced once and from the left, so what a value brings in is never expanded again; a reference
to an unknown name stays as it was written, and `$$` stands for `$`.
"""

import re
from collections.abc import Iterable, Mapping

from voda.kinds.pod_template import ContainerTemplate, EnvVar

POD_NAME = "VODA_POD_NAME"
"""Variable with the name of the replica's pod, such as digits-worker-0, which fieldRef metadata.name stands for."""
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def env_pairs(container: ContainerTemplate, namespace: str) -> tuple[tuple[str, str], ...]:
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


def expand_env(pairs: Iterable[tuple[str, str]], base: Mapping[str, str]) -> dict[str, str]:
    """Return base and the pairs, each expanded from base and the pairs before it; the later of two alike wins."""
    env = dict(base)
    for name, value in pairs:
        env[name] = expand_text(value, env)
    return env


def expand_text(text: str, env: Mapping[str, str]) -> str:
    """Return the text with every `$(NAME)` replaced whose name is known."""
    if "$" not in text:
        return text
    return _REFERENCE.sub(lambda match: _replacement(match, env), text)


def _replacement(match: re.Match[str], env: Mapping[str, str]) -> str:
    name = match[1]
    return "$" if name is None else env.get(name, match[0])
