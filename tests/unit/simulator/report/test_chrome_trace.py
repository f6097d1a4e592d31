"""Traces for Perfetto."""

from typing import Any

import msgspec
import numpy as np
import pytest

from tests.replay.test_time_travel import stored
from voda.projections.timeline import Timeline, integral_until
from voda.simulator.report.chrome_trace import Interval, TraceMark, chrome_trace


async def a_timeline() -> Timeline:
    timeline = Timeline()
    for event in await (await stored()).read(0, 10_000):
        timeline.apply(event)
    return timeline


def traced(timeline: Timeline, interval: Interval, *marks: TraceMark) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = msgspec.json.decode(chrome_trace(timeline, marks, interval))["traceEvents"]
    return events


@pytest.mark.parametrize("part", [(0.0, 1.0), (0.25, 0.5)])
async def test_trace_when_summed_up_then_has_the_gpu_time_of_the_timeline(part: tuple[float, float]) -> None:
    timeline = await a_timeline()
    steps = timeline.steps()
    begin, end = float(steps.at_s[0]), timeline.ends_at
    interval = Interval(*(begin + share * (end - begin) for share in part))
    slices = [event for event in traced(timeline, interval) if event["ph"] == "X"]
    bounds = np.array([interval.since, interval.until])
    held = float(np.diff(integral_until(steps.at_s, steps.gpus_in_use, bounds))[0])
    assert sum(event["dur"] for event in slices) / 1e6 == pytest.approx(held, rel=1e-6)
    assert all(
        event["ts"] >= 0 and event["ts"] + event["dur"] <= (interval.until - interval.since) * 1e6 + 1
        for event in slices
    )


async def test_trace_when_read_then_no_gpu_has_two_jobs_at_a_time_and_each_has_its_names() -> None:
    timeline = await a_timeline()
    events = traced(timeline, Interval(0.0, timeline.ends_at))
    nodes = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    gpus = {(event["pid"], event["tid"]) for event in events if event.get("name") == "thread_name"}
    assert set(nodes.values()) == {"cluster", *timeline.nodes}
    ends: dict[tuple[int, int], int] = {}
    for event in sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"]):
        gpu = event["pid"], event["tid"]
        assert gpu in gpus
        assert event["ts"] >= ends.get(gpu, 0) - 1
        ends[gpu] = event["ts"] + event["dur"]


async def test_trace_when_it_begins_later_then_its_counters_begin_with_what_held() -> None:
    timeline = await a_timeline()
    steps = timeline.steps()
    since = float(steps.at_s[3] + steps.at_s[4]) / 2
    jobs = [event for event in traced(timeline, Interval(since, timeline.ends_at)) if event.get("name") == "jobs"]
    assert (jobs[0]["ts"], jobs[0]["args"]) == (0, {"running": steps.running[3], "waiting": steps.queued[3]})


async def test_trace_when_something_failed_within_it_then_marks_it() -> None:
    timeline = await a_timeline()
    at = timeline.ends_at
    marks = (TraceMark(at - 1, "job a failed"), TraceMark(at + 1, "later"))
    found = [event for event in traced(timeline, Interval(at - 10, at), *marks) if event["ph"] == "i"]
    assert [(event["name"], event["ts"]) for event in found] == [("job a failed", 9_000_000)]
