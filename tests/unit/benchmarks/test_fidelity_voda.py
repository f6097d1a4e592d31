"""Claims about the simulated cluster against the ancestor's measurements."""

from pathlib import Path

import pytest

from benchmarks.fidelity_voda import fit, read_measured, run
from tests.public_data import folder_or_skip
from voda.domain.errors import DataNotFound
from voda.simulator.data import VODA_EXP
from voda.simulator.workloads.voda_exp import read_experiment


def test_measured_jcts_are_predicted_from_runs_of_the_other_algorithms() -> None:
    folder_or_skip(VODA_EXP)
    held_out = run()
    assert sum(len(one.errors) for one in held_out) == 96
    assert len(held_out) == 4
    assert all(one.is_met for one in held_out)


def test_figures_that_are_shipped_are_those_of_the_fit() -> None:
    folder_or_skip(VODA_EXP)
    fitted, shipped = fit(read_measured()), read_experiment()
    assert {name: round(work_s, 1) for name, work_s in fitted.work_s.items()} == {
        name: model.work_s for name, model in shipped.models.items()
    }
    costs = (fitted.costs.start_s, fitted.costs.resize_s, fitted.costs.migrate_s)
    assert tuple(round(seconds, 1) for seconds in costs) == (
        shipped.costs.start_s,
        shipped.costs.resize_s,
        shipped.costs.migrate_s,
    )


def test_arrivals_that_are_shipped_are_those_of_the_four_runs() -> None:
    folder_or_skip(VODA_EXP)
    runs: dict[str, list[tuple[float, str]]] = {}
    for job in read_measured():
        runs.setdefault(job.algorithm, []).append((job.submitted_s, job.model))
    for jobs in runs.values():
        for (submitted_s, model), (shipped_s, shipped) in zip(jobs, read_experiment().arrivals, strict=True):
            assert model == shipped
            assert submitted_s == pytest.approx(shipped_s, abs=0.7)


def test_measurements_when_absent_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataNotFound, match=r"github\.com/heyfey/vodascheduler"):
        run(tmp_path)
