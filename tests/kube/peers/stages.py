"""What kwok does to nodes and pods, as its stages say: those that it publishes, and ends of programs as tests ask for.

A pod's program ends once EXIT_CODE is among its annotations; with RUNS_FOR_S it ends by itself so many seconds after
its start. It is restarted in its pod where restartPolicy says so. A pod with STARTS = never is not started, and a node
with KUBELET = silent is not said to be ready again. A deleted pod goes at once; one with a finalizer, such as a Job's,
has ended by SIGTERM first; one whose program SAVES_FOR_S has saved by then, and ends with 0.

Rule: no two stages fit the same pod or node.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tests.kube.assets import manifests

Stage = dict[str, Any]
EXIT_CODE = "tests.voda.dev/exit-code"
"""Annotation of a pod: its program ends with it now."""
RUNS_FOR_S = "tests.voda.dev/runs-for-s"
"""Annotation of a pod: its program ends with ENDS_WITH (0) so many seconds after its start."""
ENDS_WITH = "tests.voda.dev/ends-with"
SAVES_FOR_S = "tests.voda.dev/saves-for-s"
"""Annotation of a pod: on SIGTERM its program saves for so many seconds, and ends with 0."""
STARTS = "tests.voda.dev/starts"
"""Annotation of a pod: "never"."""
KUBELET = "tests.voda.dev/kubelet"
"""Annotation of a node, "silent": its kubelet says no more that it is ready. As a label, "lost": it does nothing at
all."""
_PUBLISHED = ("node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease", "pod/fast/pod-delete")


def all_stages() -> str:
    """Return the stages as kwok reads them."""
    stages = [*map(_published, _PUBLISHED), *_ends()]
    _narrow(stages[0], _note(KUBELET, "NotIn", "silent"))
    started = _published("pod/fast/pod-ready")
    _narrow(started, _note(STARTS, "NotIn", "never"))
    _narrow(stages[2], _awaited("NotIn"))
    return yaml.safe_dump_all([*stages, started, *_terminated()])


def _published(name: str) -> Stage:
    path = manifests() / "kwok-0.8.0" / f"{name}.yaml"
    stage: Stage = yaml.safe_load(path.read_text())
    return stage


def _ends() -> Sequence[Stage]:
    """Return the stages by which programs end: as they are told to, and by themselves; for good, or to be restarted."""
    told, by_itself = [_note(EXIT_CODE, "Exists")], [_note(EXIT_CODE, "DoesNotExist"), _note(RUNS_FOR_S, "Exists")]
    after = {"durationFrom": {"expressionFrom": f'.metadata.annotations["{RUNS_FOR_S}"] + "s"'}}
    return [
        _end("told-to-end", [*told, _restarts(EXIT_CODE, "NotIn")], EXIT_CODE, _ENDED),
        _end("ended", [*by_itself, _restarts(ENDS_WITH, "NotIn")], ENDS_WITH, _ENDED, delay=after),
        _end("told-to-fail", [*told, _restarts(EXIT_CODE, "In")], EXIT_CODE, _RESTARTED),
        _end("restarted", [*by_itself, _restarts(ENDS_WITH, "In")], ENDS_WITH, _RESTARTED, delay=after),
    ]


def _terminated() -> Sequence[Stage]:
    """Return the stages by which programs end whose pods are deleted, and whose end something waits for."""
    after = {"durationFrom": {"expressionFrom": f'.metadata.annotations["{SAVES_FOR_S}"] + "s"'}}
    awaited = [_RUNNING, _awaited("In")]
    return [
        _stage("terminated", [*awaited, _note(SAVES_FOR_S, "DoesNotExist")], [_status(_TERMINATED)]),
        _stage("saved", [*awaited, _note(SAVES_FOR_S, "Exists")], [_status(_SAVED)], delay=after),
    ]


def _end(name: str, selectors: Sequence[Mapping[str, Any]], code: str, status: str, **spec: Any) -> Stage:
    stays = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
    # What was told is done once: a program that runs again is told again.
    forget = {"root": "metadata", "type": "merge", "template": f'annotations: {{"{EXIT_CODE}": null}}'}
    change = _status(status.replace("CODE", code))
    patches = [forget, change] if code == EXIT_CODE else [change]
    return _stage(name, [_RUNNING, stays, *selectors], patches, **spec)


def _status(template: str) -> Mapping[str, Any]:
    return {"subresource": "status", "root": "status", "type": "strategic", "template": template}


def _stage(
    name: str, selectors: Sequence[Mapping[str, Any]], patches: Sequence[Mapping[str, Any]], **spec: Any
) -> Stage:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"pod-{name}"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": list(selectors)},
            "next": {"patches": list(patches)},
            **spec,
        },
    }


def _awaited(operator: str) -> Mapping[str, Any]:
    """Select pods that are deleted and run, and for whose end a finalizer waits, or the test (In), or not (NotIn)."""
    waits = f'(.metadata.finalizers != null or .metadata.annotations["{SAVES_FOR_S}"] != null)'
    key = f'(.metadata.deletionTimestamp != null and .status.phase == "Running" and {waits})'
    return {"key": f'if {key} then "yes" else "no" end', "operator": operator, "values": ["yes"]}


def _note(name: str, operator: str, *values: str) -> Mapping[str, Any]:
    expression = {"key": f'.metadata.annotations["{name}"]', "operator": operator}
    return {**expression, **({"values": list(values)} if values else {})}


def _restarts(code: str, operator: str) -> Mapping[str, Any]:
    """Select pods whose program is restarted (operator In) or is not (NotIn) once it ends."""
    key = f'.spec.restartPolicy + (if (.metadata.annotations["{code}"] // "0") == "0" then "0" else "1" end)'
    return {"key": key, "operator": operator, "values": ["Always0", "Always1", "OnFailure1"]}


def _narrow(stage: Stage, selector: Mapping[str, Any]) -> None:
    stage["spec"]["selector"]["matchExpressions"].append(selector)


_RUNNING = {"key": ".status.phase", "operator": "In", "values": ["Running"]}
_END = """
{{ $phase := "Failed" }}{{ $reason := "Error" }}
{{ if eq $code "0" }}{{ $phase = "Succeeded" }}{{ $reason = "Completed" }}{{ end }}
{{ $now := Now }}{{ $root := . }}
phase: {{ $phase }}
conditions:
- {type: Ready, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range $index, $item := .spec.containers }}
{{ $was := index $root.status.containerStatuses $index }}
- name: {{ $item.name | Quote }}
  image: {{ $item.image | Quote }}
  ready: false
  started: false
  restartCount: {{ $was.restartCount }}
  state:
    terminated: {exitCode: {{ $code }}, reason: {{ $reason }}, finishedAt: {{ $now | Quote }}}
{{ end }}
"""
_ENDED = '{{ $code := or (index (or .metadata.annotations dict) "CODE") "0" }}' + _END
_TERMINATED = '{{ $code := "143" }}' + _END
_SAVED = '{{ $code := "0" }}' + _END
_RESTARTED = """
{{ $code := or (index (or .metadata.annotations dict) "CODE") "0" }}
{{ $now := Now }}{{ $root := . }}
containerStatuses:
{{ range $index, $item := .spec.containers }}
{{ $was := index $root.status.containerStatuses $index }}
- name: {{ $item.name | Quote }}
  image: {{ $item.image | Quote }}
  ready: true
  started: true
  restartCount: {{ add $was.restartCount 1 }}
  state:
    running: {startedAt: {{ $now | Quote }}}
  lastState:
    terminated: {exitCode: {{ $code }}, reason: Error, finishedAt: {{ $now | Quote }}}
{{ end }}
"""
