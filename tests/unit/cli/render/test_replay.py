"""Claims about how a what-if is told."""

import pytest
from rich.console import Console

from voda.cli.render.replay import comparison_tables
from voda.simulator.whatif.comparison import RunFigures, WhatIfComparison


def figures(avg_jct_s: float) -> RunFigures:
    return RunFigures(
        avg_jct_s=avg_jct_s,
        p50_jct_s=avg_jct_s,
        p90_jct_s=avg_jct_s,
        makespan_s=avg_jct_s,
        avg_queueing_s=0.0,
        restarts_per_job=0.0,
        utilisation=1.0,
    )


@pytest.mark.parametrize(("resimulated_s", "has_cause"), [(95.0, False), (80.0, True)])
def test_error_of_the_model_when_large_is_told_with_its_causes(resimulated_s: float, has_cause: bool) -> None:
    verdict = WhatIfComparison(
        position=0,
        at=0.0,
        policy="srjf",
        placer="steady",
        jobs=1,
        left_out=0,
        recorded=figures(100.0),
        resimulated=figures(resimulated_s),
        what_if=figures(90.0),
        winners=(),
        losers=(),
    )
    console = Console(width=200)
    with console.capture() as capture:
        console.print(comparison_tables(verdict))
    assert ("deaths of single workers" in capture.get()) is has_cause
