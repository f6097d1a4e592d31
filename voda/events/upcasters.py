"""Converts facts of old schemas to the current schema, one schema at a time.

Rule: an entry takes the decoded data of (type, schema) and returns those of schema + 1; it is never removed. An event
of a type that was renamed is decoded under its present name.
"""

from collections.abc import Callable, Mapping
from typing import Any

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

RENAMED: Mapping[str, str] = {
    "job.priority_changed": "job.queue_level_changed",
}
"""Old type -> type of today, in the same schema."""
_OF_TIRESIAS: Mapping[str, tuple[str, ...]] = {
    "demote_gpu_s": ("tiresias", "elastic-tiresias"),
    "promote_knob": ("tiresias", "elastic-tiresias"),
    "compact_pending": ("elastic-tiresias",),
}


def _job_submitted_1(data: dict[str, Any]) -> dict[str, Any]:
    """Rename the fields of schema 1: accelerator, num_proc, min_num_proc, max_num_proc."""
    words = {
        "accelerator": "pool",
        "num_proc": "requested_replicas",
        "min_num_proc": "min_replicas",
        "max_num_proc": "max_replicas",
    }
    return {**data, "spec": {words.get(field, field): value for field, value in data["spec"].items()}}


def _job_submitted_2(data: dict[str, Any]) -> dict[str, Any]:
    """Schema 2 named a queue, which no policy ever looked at."""
    return {**data, "spec": {field: value for field, value in data["spec"].items() if field != "queue"}}


def _job_progressed_1(data: dict[str, Any]) -> dict[str, Any]:
    """Writers of schema 1 left out the seconds of an epoch during which the workers changed, as they saw it."""
    return data


def _plan_adopted_1(data: dict[str, Any]) -> dict[str, Any]:
    """Plans of schema 1 were decided without a look at priorities."""
    cause = data["cause"]
    return {**data, "cause": RENAMED.get(cause, cause), "respects_priority": False}


def _policy_changed_1(data: dict[str, Any]) -> dict[str, Any]:
    """Schema 1 kept the parameters of both Tiresias policies among the settings of the pool."""
    parameters: dict[str, dict[str, Any]] = {}
    for parameter, policies in _OF_TIRESIAS.items():
        value = data.get(f"tiresias_{parameter}")
        if value is not None:
            for policy in policies:
                parameters.setdefault(policy, {})[parameter] = value
    rest = {field: value for field, value in data.items() if not field.startswith("tiresias_")}
    return {**rest, "parameters": parameters}


UPCASTERS: Mapping[tuple[str, int], Upcaster] = {
    ("job.submitted", 1): _job_submitted_1,
    ("job.submitted", 2): _job_submitted_2,
    ("job.progressed", 1): _job_progressed_1,
    ("plan.adopted", 1): _plan_adopted_1,
    ("policy.changed", 1): _policy_changed_1,
}
