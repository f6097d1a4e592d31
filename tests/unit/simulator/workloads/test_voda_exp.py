"""Claims about the ancestor's experiment."""

from collections import Counter

from voda.simulator.workloads.catalogue import load_workload


def test_experiment_is_24_jobs_of_four_models_on_12_gpus() -> None:
    workload = load_workload("voda-exp/run_1")
    assert [node.gpus for node in workload.nodes] == [4, 4, 4]
    assert Counter(arrival.spec.history_category for arrival in workload.arrivals) == {
        "inceptionv3": 6,
        "resnet50": 6,
        "transformer": 6,
        "vgg16": 6,
    }
    bounds = {(a.spec.min_replicas, a.spec.requested, a.spec.max_replicas) for a in workload.arrivals}
    assert bounds == {(1, 2, 4)}
    assert workload.arrivals[-1].submitted_s < 700
