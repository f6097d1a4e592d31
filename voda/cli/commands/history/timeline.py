"""`voda timeline`: a picture of who had which GPU when."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import command
from voda.cli.execution import run_async
from voda.cli.log_files import EMPTY, OWN_LOG, default_log, open_log
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.simulator.report.comparison_table import RunOutcome


@command("timeline")
def timeline(
    log: Annotated[str, Argument(help=OWN_LOG)] = "",
    out: Annotated[Path, Option("--out", help="The page to write.")] = Path("timeline.html"),
) -> None:
    """Draw who had which GPU when, and what became of each job, as one HTML page.

    \b
    Examples:
      voda timeline
      voda timeline voda.db
      voda timeline out/mine/elastic-fifo/log --out picture.html
    """
    from voda.simulator.report.pages import timeline_page

    if not out.parent.is_dir():
        raise InvalidInput(f"--out {out}: there is no folder {out.parent}; make it first")
    log = log or default_log()
    run = run_async(_read(log))
    if not run.timeline.nodes:
        raise InvalidInput(f"{log}: {EMPTY} There is nothing to draw; submit a job first")
    try:
        out.write_text(timeline_page(run), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--out {out}: the page cannot be written ({error.strerror})") from error
    print(f"{out.absolute()}: open it in a browser")


async def _read(log: str) -> "RunOutcome":
    from voda.controller.follower import catch_up
    from voda.log.factory import display_name
    from voda.projections.cluster.live_cluster import LiveCluster
    from voda.projections.history import History
    from voda.projections.timeline import Timeline
    from voda.simulator.report.pages import recorded_run

    history, timeline, live = History(), Timeline(), LiveCluster()
    async with open_log(log) as store:
        await catch_up(store, [history, timeline, live], after=0)
    settings = [live.settings(pool) for pool in live.pools()]
    policies, placers = ({getattr(one, name) for one in settings} for name in ("policy", "placer"))
    return recorded_run(
        history,
        timeline,
        policy=", ".join(sorted(policies)),
        placer=", ".join(sorted(placers)),
        source=display_name(log),
    )
