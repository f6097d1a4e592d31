"""`voda replay`: a moment of the past, a proof of the decisions, or another policy in hindsight."""

import sys
from dataclasses import dataclass
from typing import Annotated

import click

from voda.cli.command_group import command
from voda.cli.execution import progress_bar, run_async
from voda.cli.log_files import (
    EMPTY,
    MOMENT,
    OWN_LOG,
    LogOutput,
    LogOutputOption,
    default_log,
    open_log,
    place_of,
    print_json,
)
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput
from voda.text import counted

_DIFFERS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    policy: Annotated[str, Option("--what-if", metavar="POLICY", help="Let this policy decide instead.")] = ""
    placer: Annotated[str, Option("--placer", help="What-if: this placer; by default as recorded.")] = ""
    fair_share: Annotated[
        str, Option("--fair-share", help="What-if: users, or weights such as ann=2,bob=0.5; by default as recorded.")
    ] = ""
    begin: Annotated[str, Option("--from", help="What-if: from this moment on; by default from the beginning.")] = ""
    pool: Annotated[str, Option("--pool", help="What-if: of this pool, where there are several.")] = ""


@command("replay")
def replay(
    *,
    log: Annotated[str, Argument(help=OWN_LOG)] = "",
    until: Annotated[str, Option("--until", help=f"Show the cluster at {MOMENT}; by default the end.")] = "",
    verify: Annotated[bool, Option("--verify", help="Make every recorded decision again.")] = False,
    what_if: WhatIf,
    output: LogOutputOption = "table",
) -> None:
    """Show the cluster at a moment, check every decision, or try another policy.

    \b
    Examples:
      voda replay --until -10m
      voda replay voda.db --until -10m
      voda replay voda.db --until 2026-01-31T12:00:00Z -o json
      voda replay voda.db --verify
      voda replay out/mine/elastic-fifo/log --what-if elastic-tiresias
      voda replay voda.db --what-if afs-l --placer packed --from 1200

    --verify exits with 1 at the first decision that does not follow from the
    log before it. --what-if simulates the recorded submissions, cancellations,
    changes and nodes again, at the job speeds measured in the whole log.
    """
    if sum(map(bool, (until, verify, what_if.policy))) > 1:
        raise InvalidInput("--until, --verify and --what-if exclude each other: give one of them")
    if not what_if.policy and what_if != WhatIf():
        raise InvalidInput("--placer, --fair-share, --from and --pool belong to --what-if: name a policy")
    log = log or default_log()
    if verify:
        run_async(_verify(log, output))
    elif what_if.policy:
        run_async(_compare(log, what_if, output))
    else:
        run_async(_show_snapshots(log, until, output))


async def _show_snapshots(log: str, until: str, output: LogOutput) -> None:
    from voda.cli.render.replay import errors_table, snapshot_tables
    from voda.cli.render.terminal import show
    from voda.timetravel.replay import live_at
    from voda.timetravel.snapshot_tables import cluster_snapshots

    async with open_log(log) as store:
        place = await place_of(store, until)
        live = await live_at(store, place.position)
    found, errors = cluster_snapshots(live, place.at), live.learning.errors()
    if output == "json":
        estimates = {name: {"jobs": error.count, "mean_error": error.mean} for name, error in errors.items()}
        print_json({"position": place.position, "pools": found, "estimates": estimates})
        return
    for snapshot in found:
        show(snapshot_tables(snapshot))
    if errors:
        show(errors_table(errors))
    if not found:
        print(EMPTY if not until else "Nothing had happened by then.", file=sys.stderr)


async def _verify(log: str, output: LogOutput) -> None:
    from voda.timetravel.verify import verify

    async with open_log(log) as store:
        total = await store.position()
        with progress_bar("verify") as progress:
            found = await verify(store, progress=lambda position: progress(position, total))
    differs, decisions = found.difference, counted(found.decisions, "decision")
    if output == "json":
        print_json(found)
    elif differs is None:
        print(f"{decisions} made again: all equal the recorded ones")
    else:
        job = f", job {differs.job_id}" if differs.job_id else ""
        print(f"position {differs.position}{job}: the {differs.what} differs from what the log before it leads to")
        print(f"  recorded:   {differs.recorded}")
        print(f"  recomputed: {differs.recomputed}")
        print(f"{decisions} before it equal the recorded ones")
    if differs is not None:
        raise click.exceptions.Exit(_DIFFERS)


async def _compare(log: str, what_if: WhatIf, output: LogOutput) -> None:
    from voda.cli.render.replay import comparison_tables
    from voda.cli.render.terminal import show
    from voda.domain.settings import checked_fair_share
    from voda.placement import PLACERS
    from voda.policies import POLICIES
    from voda.simulator.whatif.what_if import AlternativePolicy, compare_with

    placer = PLACERS.choose(what_if.placer).name if what_if.placer else None
    fair_share = checked_fair_share(what_if.fair_share) or None
    choice = AlternativePolicy(policy=POLICIES.choose(what_if.policy).name, placer=placer, fair_share=fair_share)
    async with open_log(log) as store:
        cut = (await place_of(store, what_if.begin)).position if what_if.begin else 0
        compared = await compare_with(store, cut, choice, pool=what_if.pool or None)
    if output == "json":
        print_json(compared)
    else:
        show(comparison_tables(compared))
