"""What the benchmark of scheduling quality makes of runs, and one run of it."""

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.quality import main, summarise
from voda.simulator.metrics import RunResult

A_RUN = RunResult(
    workload="pollux/workload-1",
    policy="srjf",
    placer="packed",
    jobs=160,
    avg_jct_s=3000.0,
    p50_jct_s=0.0,
    p90_jct_s=0.0,
    p99_jct_s=0.0,
    makespan_s=36_000.0,
    avg_queueing_s=0.0,
    restarts_per_job=1.0,
    migrations_per_job=0.0,
    spanning_jobs=0,
    gpu_hours=0.0,
    utilisation=0.0,
    unfair_share=0.5,
    worst_rho=2.0,
    decision_p95_s=0.0,
    wall_s=0.0,
)


def test_figures_of_a_family_are_means_and_the_ratio_is_to_the_best_of_the_others() -> None:
    runs = [
        A_RUN,
        replace(A_RUN, policy="fifo", avg_jct_s=9000.0),
        replace(A_RUN, policy="elastic-value,fairness=0.0", avg_jct_s=2000.0),
        replace(A_RUN, workload="pollux/workload-3", avg_jct_s=5000.0, worst_rho=3.0, unfair_share=0.0),
        replace(A_RUN, workload="pollux-2x/workload-1", avg_jct_s=8000.0),
    ]
    found = {(each.family, each.policy): each for each in summarise(runs)}
    srjf, new = found["pollux", "srjf"], found["pollux", "elastic-value,fairness=0.0"]
    assert (srjf.workloads, srjf.avg_jct_s, srjf.worst_rho, srjf.unfair_share) == (2, 4000.0, 3.0, 0.25)
    assert (srjf.jct_to_best, new.jct_to_best, srjf.makespan_h) == (1.0, 0.5, 10.0)
    assert found["pollux-2x", "srjf"].jct_to_best == 1.0


def test_quality_when_asked_for_json_prints_figures_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["-w", "voda-exp/run_1", "-p", "elastic-fifo", "-p", "elastic-value", "-o", "json"])
    printed = capsys.readouterr()
    document = msgspec.json.decode(printed.out)
    assert [each["policy"] for each in document["figures"]] == ["elastic-fifo", "elastic-value"]
    assert [each["jobs"] for each in document["runs"]] == [24, 24]
    assert "1 of 1: voda-exp/run_1, elastic-value, packed" in printed.err


def test_quality_when_a_policy_is_unknown_says_so() -> None:
    with pytest.raises(SystemExit, match="'nope' is not known"):
        main(["-p", "nope"])
