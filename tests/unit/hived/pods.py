"""Pods as kube-scheduler sends them, with HiveD's annotations."""

import json
from collections.abc import Mapping
from typing import Any

from voda.hived.pod_request import SCHEDULING_SPEC, HivedPod, PodMetadata


def a_pod(name: str, *, annotations: Mapping[str, str] | None = None, **spec: Any) -> HivedPod:
    """Return a pod of one device in virtual cluster `a`, unless its request says otherwise; JSON is YAML."""
    request = {"virtualCluster": "a", "leafCellNumber": 1, **spec}
    metadata = PodMetadata(name, "team", name, {SCHEDULING_SPEC: json.dumps(request), **(annotations or {})})
    return HivedPod(metadata)


def a_group(name: str, *members: tuple[int, int]) -> dict[str, Any]:
    """Return an affinity group; members: (pods, devices of each)."""
    return {"name": name, "members": [{"podNumber": pods, "leafCellNumber": leafs} for pods, leafs in members]}
