"""What the settings file of `voda serve` may say."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import astuple

from voda.app.kubernetes.options import KubernetesOptions, checked, read_options
from voda.application.job_rules import JobRules
from voda.domain.errors import InvalidInput


def reading(folder: Path, text: str) -> KubernetesOptions:
    (folder / "voda.yaml").write_text(text)
    return read_options(folder / "voda.yaml")


@pytest.mark.parametrize("text", ["", "\n", "# nothing yet\n", "{}", "pools: {}"])
def test_file_that_says_nothing_means_the_defaults(tmp_path: Path, text: str) -> None:
    assert reading(tmp_path, text) == KubernetesOptions()


def test_defaults_can_be_meant() -> None:
    assert checked(KubernetesOptions()) == KubernetesOptions()


def test_file_that_says_everything_is_read_as_written(tmp_path: Path) -> None:
    text = """
log: postgresql://voda@db/voda
home: /data
listen: {host: "::", port: 0}
access: {folder: /etc/voda/access}
cluster:
  poolLabel: nvidia.com/gpu.product
  defaultPool: ""
  gpuResource: amd.com/gpu
  toleratedTaints: [dedicated]
  namespaces: [vision, speech]
  kinds: [Job, MPIJob]
  relistSeconds: 60
leader: {namespace: voda-system, name: voda-2, leaseSeconds: 30, renewSeconds: 20, retrySeconds: 5}
api: {url: "https://voda.example"}
metricsFolder: /metrics
jobsPerUser: 3
pools:
  a100: {policy: elastic-tiresias, placer: packed, ratelimitSeconds: 30}
  NVIDIA-A100-SXM4-80GB: {parameters: {tiresias: {demote_gpu_s: 7200}, elastic-tiresias: {compact_pending: 5}}}
"""
    options = reading(tmp_path, text)
    assert options.cluster.namespaces == ("vision", "speech")
    assert options.cluster.kinds == ("Job", "MPIJob")
    assert options.pool_settings("a100") == {"policy": "elastic-tiresias", "placer": "packed", "ratelimit_s": 30.0}
    parameters = {"tiresias": {"demote_gpu_s": 7200.0}, "elastic-tiresias": {"compact_pending": 5}}
    assert options.pool_settings("NVIDIA-A100-SXM4-80GB") == {"parameters": parameters}
    assert options.pool_settings("v100") == {}
    assert options.jobs_per_user == 3
    assert KubernetesOptions().jobs_per_user == JobRules(pools=()).jobs_per_user
    assert not set(msgspec.to_builtins(options)) - set(msgspec.to_builtins(KubernetesOptions()))


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("", (15.0, 10.0, 2.0)),
        ("leader: {election: log}", (8.0, 5.0, 1.0)),
        ("leader: {election: log, leaseSeconds: 6, retrySeconds: 0.5}", (6.0, 5.0, 0.5)),
    ],
)
def test_spans_that_are_left_out_suit_the_election(tmp_path: Path, text: str, spans: tuple[float, ...]) -> None:
    assert astuple(reading(tmp_path, text).leader.timings()) == spans


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lisen: {port: 1}", "lisen is unknown here, expected one of log, home, listen,"),
        ("exec: {idleSeconds: 60}", "there is no exec any more: leave it out; on Kubernetes `kubectl exec` runs"),
        ("listen: {prt: 1}", "listen.prt is unknown here, expected one of host, port"),
        ("pools: {a100: {polcy: fifo}}", "pools.a100.polcy is unknown here, expected one of policy, placer"),
        ("listen: {port: a}", "listen.port: expected int, got str"),
        ("listen: 8470", "listen: expected object, got int"),
        ("pools: {a100: fifo}", "expected object, got str"),
        ("listen: {port: 65536}", "listen.port is 65536, expected 0"),
        ("- pools", "expected fields such as `pools:`, got a list"),
        ("pools: [", "no valid YAML"),
        ("pools: {a100: {policy: lifo}}", "pools.a100.policy: policy 'lifo' is not known"),
        ("pools: {a100: {placer: anywhere}}", "pools.a100.placer: placer 'anywhere' is not known"),
        ("sharing: {rater: tight}", "sharing.rater: rater 'tight' is not known"),
        ("sharing: {nodesToScore: -1}", r"sharing.nodesToScore is -1, expected 0 \(all\) or more"),
        ("sharing: {coreResources: []}", "sharing.coreResources is empty, expected the name of an extended resource"),
        ("sharing: {memoryResources: [a b]}", r"sharing.memoryResources\[0\] is 'a b', expected the name of an"),
        ("sharing: {coreResources: [a/b], memoryResources: [a/b]}", "sharing.memoryResources both have a/b"),
        ("sharing: {coreResource: []}", "sharing.coreResource is unknown here, expected one of enabled, rater"),
        ("pools: {a100: {ratelimitSeconds: -1}}", "pools.a100.ratelimitSeconds: expected a number >= 0.0, got -1"),
        ("pools: {a100: {policy: }}", "pools.a100.policy: expected text, got None"),
        ("pools: {a100: {policy: [lifo]}}", "pools.a100.policy: expected text, got "),
        ("pools: {a100: {parameters: {tiresias: }}}", "pools.a100.parameters: expected names and values, got "),
        ("pools: {a100: {parameters: {lifo: {x: 1}}}}", "pools.a100.parameters: policy 'lifo' is not known"),
        (
            "pools: {a100: {parameters: {fifo: {x: 1}}}}",
            "pools.a100.parameters: fifo has no parameter 'x'",
        ),
        (
            "pools: {a100: {parameters: {tiresias: {demote_gpu_s: soon}}}}",
            "pools.a100.parameters: parameters.tiresias.demote_gpu_s: expected a number",
        ),
        ("pools: {'1.5': {}}", "pools: expected 1 to 63 of letters"),
        ("leader: {renewSeconds: 15}", "leader: expected 0 < retrySeconds < renewSeconds < leaseSeconds"),
        ("leader: {election: log, renewSeconds: 8}", "leaseSeconds, got 1, 8 and 8"),
        ("leader: {leaseSeconds: 3601}", "leader.leaseSeconds is 3601, expected at most 3600"),
        ("leader: {election: raft}", "leader.election: invalid enum value 'raft'"),
        ("leader: {name: Voda/1}", "leader.name is 'Voda/1', expected the name of a Lease"),
        ("leader: {namespace: a.b}", "leader.namespace is 'a.b', expected the name of a namespace"),
        ("cluster: {poolLabel: ''}", "cluster.poolLabel is '', expected a label's key"),
        ("cluster: {gpuResource: 'nvidia.com/gpu/0'}", "cluster.gpuResource is 'nvidia.com/gpu/0'"),
        ("cluster: {defaultPool: a.b}", "cluster.defaultPool: expected 1 to 63 of letters"),
        ("cluster: {gpuDeviceClasses: [GPU]}", r"cluster.gpuDeviceClasses\[0\] is 'GPU', expected the name of a Devi"),
        ("cluster: {poolDeviceAttribute: a b}", r"cluster.poolDeviceAttribute is 'a b', expected an attribute of"),
        ("cluster: {toleratedTaints: ['a=b:NoSchedule']}", r"cluster.toleratedTaints\[0\] is 'a=b:NoSchedule'"),
        ("cluster: {namespaces: [ok, 'Not Ok']}", r"cluster.namespaces\[1\] is 'Not Ok'"),
        ("cluster: {kinds: [JobSet]}", r"cluster.kinds has JobSet without Job, expected both"),
        ("cluster: {kinds: [Job, TFJob]}", r"cluster.kinds\[1\] is 'TFJob', expected one of"),
        ("cluster: {relistSeconds: 0.5}", "cluster.relistSeconds is 0.5, expected 1"),
        ("api: {url: voda.example}", "api.url is 'voda.example', expected http"),
        ("jobsPerUser: 0", "jobsPerUser is 0, expected 1"),
        ("logBytesPerUser: -1", "logBytesPerUser is -1, expected 0"),
        ("liveBytesPerUser: -1", "liveBytesPerUser is -1, expected 0"),
        ("home: ''", "home is empty"),
    ],
)
def test_file_that_cannot_be_meant_is_refused_with_the_path_of_what_is_wrong(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(InvalidInput, match=rf"settings file .*voda\.yaml: .*{told}") as refused:
        reading(tmp_path, text)
    assert "\n" not in str(refused.value)


def test_file_that_is_none_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"voda\.yaml cannot be read: No such file or directory$"):
        read_options(tmp_path / "voda.yaml")
    with pytest.raises(InvalidInput, match=r"cannot be read: Is a directory$"):
        read_options(tmp_path)
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match=r"noise is no text: expected UTF-8$"):
        read_options(tmp_path / "noise")
    (tmp_path / "log").write_bytes(b"#" * 1_000_001)
    with pytest.raises(InvalidInput, match="log has more than 1000000 bytes"):
        read_options(tmp_path / "log")


def test_names_of_shared_gpus_reach_the_rule_by_which_nodes_are_read(tmp_path: Path) -> None:
    text = "sharing: {enabled: true, coreResources: [example.com/core]}"
    rule = reading(tmp_path, text).pool_rule()
    assert rule.share_resources.core == ("example.com/core",)
    assert rule.share_resources.memory == ("elasticgpu.io/gpu-memory", "elasticgpu.com/gpu-memory")
