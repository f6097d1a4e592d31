"""What the benchmark of scheduling quality makes of runs, and one run of it."""

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.quality import main, summarise
from benchmarks.quality_pictures import write_pictures
from benchmarks.variations import Variation, varied
from voda.simulator.metrics import RunResult
from voda.simulator.workloads.catalogue import load_workload

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


def test_variations_change_what_is_known_of_jobs_and_how_long_they_are() -> None:
    workload = load_workload("voda-exp/run_1")
    varied_all = varied(
        workload,
        Variation(sigma=0.6, lengths_unknown=True, without_categories=True, powers_of_two=True),
        seed=0,
    )
    specs = [arrival.spec for arrival in varied_all.arrivals]
    assert {spec.epochs for spec in specs} == {0}
    assert len({spec.history_category for spec in specs}) == len(specs)
    assert all(spec.sizes is not None and spec.max_replicas & (spec.max_replicas - 1) == 0 for spec in specs)
    ratios = [
        new.profile.epochs / old.profile.epochs for new, old in zip(varied_all.arrivals, workload.arrivals, strict=True)
    ]
    assert min(ratios) < 0.8 < 1.2 < max(ratios)
    assert varied(workload, Variation(), seed=0) == workload


def test_quality_when_sigma_is_no_spread_says_so() -> None:
    with pytest.raises(SystemExit, match="sigma: expected a number from 0 to 3, got -1"):
        main(["-w", "voda-exp/run_1", "--sigma", "-1"])


def test_pictures_show_every_policy_and_what_is_published_of_these_workloads(tmp_path: Path) -> None:
    jct_s = {"srjf": [10.0, 100.0, 4000.0], "elastic-value": [10.0, 50.0, 1000.0]}
    unfair = {"srjf": 0.5, "elastic-value": 0.1}
    paths = write_pictures(tmp_path, "pollux", jct_s, unfair, has_published=True)
    assert [path.name for path in paths] == [
        "quality-pollux-jct.svg",
        "quality-pollux-mean.svg",
        "quality-pollux-unfair.svg",
    ]
    words = [ElementTree.fromstring(path.read_text("utf-8")).itertext() for path in paths]
    jct, mean, shares = (" ".join(each) for each in words)
    assert "srjf" in jct
    assert mean.split("mean completion time, s")[1].split() == (
        ["elastic-value", "353", "srjf", "1,370", "bound", "1,923", "Pollux,", "published", "2,479"]
    )
    assert shares.split("%")[1].split() == ["elastic-value", "10", "srjf", "50"]


def test_quality_when_asked_for_pictures_draws_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["-w", "voda-exp/run_1", "-p", "elastic-value", "-o", "json", "--pictures", str(tmp_path / "new")])
    assert "elastic-value" in capsys.readouterr().out
    assert len(list((tmp_path / "new").glob("quality-voda-exp-*.svg"))) == 3
