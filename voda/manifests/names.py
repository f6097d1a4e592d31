"""Names in a manifest: of the job, its namespace and pool.

Rule: a name that Kubernetes would refuse, here or in an object made from it, is refused before the job exists.
"""

import re

from voda.domain.errors import InvalidField
from voda.kinds.pod_template import JobMetadata

LONGEST_LABEL = 63
_DNS_1035 = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_DNS_1123 = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
# No dots: a pool's name is part of the names of its streams.
_POOL = re.compile(r"[A-Za-z0-9](?:[-_A-Za-z0-9]*[A-Za-z0-9])?")


def job_name(metadata: JobMetadata) -> str:
    """Return the job's name, a DNS-1035 label."""
    if not metadata.name:
        if metadata.generate_name:
            raise InvalidField(
                "metadata.generateName",
                "metadata.generateName is not supported: give metadata.name; the same name may be submitted again once"
                " the earlier job has ended",
            )
        raise InvalidField("metadata.name", "metadata.name is missing: give the job a name")
    return _matching(
        metadata.name, "metadata.name", _DNS_1035, "a-z, 0-9 and '-', beginning with a letter, not ending with '-'"
    )


def namespace(metadata: JobMetadata) -> str:
    """Return the namespace, a DNS-1123 label; default if there is none."""
    if not metadata.namespace:
        return "default"
    return _matching(
        metadata.namespace, "metadata.namespace", _DNS_1123, "a-z, 0-9 and '-', not beginning or ending with '-'"
    )


def pool_of_label(value: str, path: str) -> str:
    """Return the pool of nodes with that label, or refuse it; dots become dashes, as streams are named after pools."""
    return pool(value.replace(".", "-"), path)


def pool(name: str, path: str) -> str:
    """Return the name of a pool or of a virtual cluster, or refuse it with the path it came from."""
    return _matching(name, path, _POOL, "letters, digits, '-' and '_', beginning and ending with a letter or digit")


def refuse_long_worker_name(name: str, most: int) -> None:
    """Refuse a job whose last worker at its greatest size would have too long a name."""
    last = f"{name}-worker-{most - 1}"
    if len(last) > LONGEST_LABEL:
        spare = LONGEST_LABEL - (len(last) - len(name))
        raise InvalidField(
            "metadata.name",
            f"metadata.name: expected up to {spare} characters, so that {last[:80]} has no more than {LONGEST_LABEL},"
            f" got {len(name)}",
        )


def _matching(text: str, path: str, pattern: re.Pattern[str], expected: str) -> str:
    if len(text) > LONGEST_LABEL or not pattern.fullmatch(text):
        raise InvalidField(path, f"{path}: expected 1 to {LONGEST_LABEL} of {expected}, got {text[:80]!r}")
    return text
