"""Converts facts of old schemas to the current schema, one schema at a time.

Rule: an entry takes the decoded data of (type, schema) and returns those of schema + 1; it is never removed.
"""

from collections.abc import Callable, Mapping
from typing import Any

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


def _job_submitted_1(data: dict[str, Any]) -> dict[str, Any]:
    """Rename the fields of schema 1: accelerator, num_proc, min_num_proc, max_num_proc."""
    words = {
        "accelerator": "pool",
        "num_proc": "requested_replicas",
        "min_num_proc": "min_replicas",
        "max_num_proc": "max_replicas",
    }
    return {**data, "spec": {words.get(field, field): value for field, value in data["spec"].items()}}


UPCASTERS: Mapping[tuple[str, int], Upcaster] = {
    ("job.submitted", 1): _job_submitted_1,
}
