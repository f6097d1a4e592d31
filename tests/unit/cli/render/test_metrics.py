"""Curves of what a job reported."""

from datetime import UTC, datetime

from voda.cli.render.metrics import as_csv, curves, names_of, sparkline
from voda.domain.job import MetricValue
from voda.wire.jobs import ReportView

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def reported(*metrics: dict[str, MetricValue]) -> list[ReportView]:
    """Return a report for each, an epoch after the other."""
    return [
        ReportView(epochs_done=epoch, reported_at=AT, workers=2, epoch_s=None, metrics=each)
        for epoch, each in enumerate(metrics, 1)
    ]


def test_line_goes_from_the_least_to_the_most_and_marks_what_is_no_finite_number() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 20).plain == "▁▂▃▄▅▆▇█"
    odd = sparkline([1.0, "nan", 2.0, "-inf"], 20)
    assert odd.plain == "▁x█x"
    assert {str(span.style) for span in odd.spans} == {"red"}
    assert sparkline(["nan"], 20).plain == "x"
    assert sparkline([3.0, 3.0], 20).plain == "▁▁"
    assert sparkline([], 20).plain == ""
    assert sparkline([-1.7e308, 1.7e308], 20).plain == "▁█"


def test_line_of_many_values_is_as_wide_as_there_is_room_and_ends_with_the_last() -> None:
    line = sparkline([*range(1_000), "nan"], 24).plain
    assert len(line) == 24
    assert line.endswith("x")


def test_curves_say_first_least_most_and_last_and_how_many_were_odd() -> None:
    reports = reported({"loss": 4.0}, {"loss": 0.5, "accuracy": 0.25}, {"loss": "nan"})
    assert names_of(reports) == ["loss", "accuracy"]
    assert [line.plain for line in curves(reports, ["loss", "accuracy"], 80)] == [
        "loss      █▁x  4 -> nan (0.5 to 4), 1 nan or inf",
        "accuracy  ▁  0.25 -> 0.25 (0.25 to 0.25)",
    ]
    ten_thousand = reported({f"m{number}": 1.0 for number in range(10_000)})
    assert len(curves(ten_thousand, names_of(ten_thousand), 80)) == 10_000


def test_csv_has_a_line_for_each_report_and_a_column_for_each_metric() -> None:
    assert as_csv(reported({"loss": 4.0}, {"a,b": "inf"}), ["loss", "a,b"]).splitlines() == [
        'epoch,reported_at,workers,epoch_s,loss,"a,b"',
        "1,2026-01-31T12:00:00+00:00,2,,4.0,",
        "2,2026-01-31T12:00:00+00:00,2,,,inf",
    ]
