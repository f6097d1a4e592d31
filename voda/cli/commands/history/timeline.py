"""`voda timeline`: who had which GPU when, as a picture or as a trace."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from voda.cli.command_group import command
from voda.cli.execution import run_async
from voda.cli.log_files import EMPTY, MOMENT, OWN_LOG, default_log, open_log, place_of
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.projections.timeline import Timeline


@command("timeline")
def timeline(
    log: Annotated[str, Argument(help=OWN_LOG)] = "",
    out: Annotated[
        Path | None, Option("--out", help="The file to write; by default timeline.html or timeline.json.")
    ] = None,
    file_format: Annotated[
        Literal["html", "chrome-trace"], Option("--format", help="A page, or a trace that Perfetto opens.")
    ] = "html",
    since: Annotated[str, Option("--from", help=f"Trace: {MOMENT}; by default the beginning.")] = "",
    until: Annotated[str, Option("--until", help=f"Trace: {MOMENT}; by default the end.")] = "",
) -> None:
    """Draw who had which GPU when: an HTML page, or a trace for Perfetto.

    \b
    Examples:
      voda timeline
      voda timeline voda.db
      voda timeline out/mine/elastic-fifo/log --out picture.html
      voda timeline --format chrome-trace --from -2h     # for ui.perfetto.dev
    """
    if file_format == "html" and (since or until):
        raise InvalidInput("--from and --until are of traces: add --format chrome-trace")
    out = out or Path("timeline.html" if file_format == "html" else "timeline.json")
    if not out.parent.is_dir():
        raise InvalidInput(f"--out {out}: there is no folder {out.parent}; make it first")
    log = log or default_log()
    drawn = run_async(_page(log) if file_format == "html" else _trace(log, since, until))
    try:
        out.write_bytes(drawn)
    except OSError as error:
        raise InvalidInput(f"--out {out}: it cannot be written ({error.strerror})") from error
    where = "a browser" if file_format == "html" else "https://ui.perfetto.dev"
    print(f"{out.absolute()}: open it in {where}")


async def _page(log: str) -> bytes:
    from voda.controller.follower import catch_up
    from voda.log.factory import display_name
    from voda.projections.cluster.live_cluster import LiveCluster
    from voda.projections.history import History
    from voda.projections.timeline import Timeline
    from voda.simulator.report.pages import recorded_run, timeline_page

    history, timeline, live = History(), Timeline(), LiveCluster()
    async with open_log(log) as store:
        await catch_up(store, [history, timeline, live], after=0)
    _refuse_empty(log, timeline)
    settings = [live.settings(pool) for pool in live.pools()]
    policies, placers = ({getattr(one, name) for one in settings} for name in ("policy", "placer"))
    run = recorded_run(
        history,
        timeline,
        policy=", ".join(sorted(policies)),
        placer=", ".join(sorted(placers)),
        source=display_name(log),
    )
    return timeline_page(run).encode()


async def _trace(log: str, since: str, until: str) -> bytes:
    from voda.controller.follower import catch_up
    from voda.events.envelope import Event
    from voda.events.event_text import describe, subject_of
    from voda.events.types import JobFailed, NodeLeft, ProgramFailed
    from voda.projections.timeline import Timeline
    from voda.simulator.report.chrome_trace import Interval, TraceMark, chrome_trace

    timeline, marks = Timeline(), list[TraceMark]()

    def mark(event: Event) -> None:
        if isinstance(event.data, JobFailed | ProgramFailed | NodeLeft):
            subject = subject_of(event)
            marks.append(TraceMark(event.recorded_at, f"{subject}: {describe(event)}" if subject else describe(event)))

    async with open_log(log) as store:
        begin, end = await place_of(store, since or "1"), await place_of(store, until)
        if end.at < begin.at:
            raise InvalidInput(f"--until {until} is before --from {since or 'the beginning'}: expected a later moment")
        await catch_up(store, [timeline], after=0, until=end.position, on_event=mark)
    _refuse_empty(log, timeline)
    return chrome_trace(timeline, marks, Interval(begin.at, end.at))


def _refuse_empty(log: str, timeline: "Timeline") -> None:
    if not timeline.nodes:
        raise InvalidInput(f"{log}: {EMPTY} There is nothing to draw; submit a job first")
