"""The environment and command line of one process: Kubernetes' `$(VAR)` rules.

Rule: a reference is replaced once and from the left, so what a value brings in is never expanded again; a reference
to what is not known stays as it was written, and `$$` stands for `$`.
"""

import re
from collections.abc import Mapping

from voda.manifests.parsed import POD_NAME, Program

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expanded(program: Program, base: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command line and the environment of one process of a program.

    Args:
        program: as the manifest has it.
        base: what the process is given besides; values may refer to it, and a variable of the program that has the
            same name takes its place. VODA_POD_NAME should be there (the pod's name, which fieldRef metadata.name
            stands for); without it, it is made from VODA_JOB_NAME and the role.

    Returns:
        argv (empty where the manifest leaves it to the image), and base with the program's variables.
    """
    pod_name = f"{base.get('VODA_JOB_NAME', 'job')}-{program.role}"
    env = expanded_env(program.env, {POD_NAME: pod_name, **base})
    return tuple(expanded_text(word, env) for word in program.argv), env


def expanded_env(pairs: tuple[tuple[str, str], ...], base: Mapping[str, str]) -> dict[str, str]:
    """Return base and the pairs, each expanded from base and from the pairs before it; of two alike the later wins."""
    env = dict(base)
    for name, value in pairs:
        env[name] = expanded_text(value, env)
    return env


def expanded_text(text: str, env: Mapping[str, str]) -> str:
    """Return the text with every `$(NAME)` of a known name replaced."""
    if "$" not in text:
        return text
    return _REFERENCE.sub(lambda found: _replacement(found, env), text)


def _replacement(found: re.Match[str], env: Mapping[str, str]) -> str:
    name = found[1]
    if name is None:
        return "$"
    return env.get(name, found[0])
