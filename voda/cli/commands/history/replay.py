"""`voda replay`: a moment of the past, a proof of the decisions, or another policy in hindsight."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.execution import run_async
from voda.cli.log_files import EMPTY, LOG, MOMENT, LogOutput, LogOutputOption, open_log, place_of
from voda.cli.options import command

if TYPE_CHECKING:
    from voda.log.store import EventStore
    from voda.simulator.whatif.comparison import WhatIfComparison
    from voda.timetravel.verify import Verification

_DIFFERS = 1


@command("replay")
def replay(  # noqa: PLR0913 - a command's options are its parameters
    log: Annotated[str, typer.Argument(help=LOG)],
    until: Annotated[str, typer.Option("--until", help=f"Show the cluster at {MOMENT}; by default the end.")] = "",
    verify: Annotated[bool, typer.Option("--verify", help="Make every recorded decision again.")] = False,
    policy: Annotated[str, typer.Option("--what-if", metavar="POLICY", help="Let this policy decide instead.")] = "",
    placer: Annotated[str, typer.Option("--placer", help="What-if: this placer; by default as recorded.")] = "",
    begin: Annotated[
        str, typer.Option("--from", help="What-if: from this moment on; by default from the beginning.")
    ] = "",
    pool: Annotated[str, typer.Option("--pool", help="What-if: of this pool, where there are several.")] = "",
    output: LogOutputOption = LogOutput.TABLE,
) -> None:
    """Show the cluster at a moment, check every decision, or try another policy.

    \b
    Examples:
      voda replay voda.db --until -10m
      voda replay voda.db --until 2026-01-31T12:00:00Z -o json
      voda replay voda.db --verify
      voda replay out/mine/elastic-fifo/log.jsonl --what-if elastic-tiresias
      voda replay voda.db --what-if afs-l --placer packed --from 1200

    --verify exits with 1 at the first decision that does not follow from the
    log before it. --what-if simulates the recorded submissions, cancellations,
    changes and nodes again, at the job speeds measured in the whole log.
    """
    from voda.domain.errors import InvalidInput

    if sum(map(bool, (until, verify, policy))) > 1:
        raise InvalidInput("--until, --verify and --what-if exclude each other: give one of them")
    if (placer or begin or pool) and not policy:
        raise InvalidInput("--placer, --from and --pool belong to --what-if: name a policy")
    if verify:
        _show_verification(run_async(_verify(log)), output)
    elif policy:
        _show_verdict(run_async(_what_if(log, policy=policy, placer=placer, begin=begin, pool=pool)), output)
    else:
        run_async(_show_scenes(log, until, output))


async def _show_scenes(log: str, until: str, output: LogOutput) -> None:
    import msgspec
    from rich.console import Console

    from voda.cli.render.replay import accuracy_table, snapshot_tables
    from voda.timetravel.replay import live_at
    from voda.timetravel.snapshot_tables import cluster_snapshots

    async with open_log(log) as store:
        place = await place_of(store, until)
        live = await live_at(store, place.position)
    found, accuracy = cluster_snapshots(live, place.at), live.learning.accuracy()
    if output is LogOutput.JSON:
        estimates = {category: one._asdict() for category, one in accuracy.items()}
        print(msgspec.json.encode({"position": place.position, "pools": found, "estimates": estimates}).decode())
        return
    console = Console(highlight=False)
    for scene in found:
        console.print(snapshot_tables(scene))
    if accuracy:
        console.print(accuracy_table(accuracy))
    if not found:
        print(EMPTY if not until else "Nothing had happened by then.", file=sys.stderr)


async def _verify(log: str) -> "Verification":
    from voda.cli.execution import progress_bar
    from voda.timetravel.verify import verify

    async with open_log(log) as store:
        total = await store.position()
        with progress_bar("verify") as progress:
            return await verify(store, progress=lambda position: progress(position, total))


def _show_verification(found: "Verification", output: LogOutput) -> None:
    import msgspec

    from voda.text import counted

    if output is LogOutput.JSON:
        print(msgspec.json.encode(found).decode())
    elif found.difference is None:
        print(f"{counted(found.decisions, 'decision')} made again: all equal the recorded ones")
    else:
        differs = found.difference
        job = f", job {differs.job_id}" if differs.job_id else ""
        print(f"position {differs.position}{job}: the {differs.what} differs from what the log before it leads to")
        print(f"  recorded:   {differs.recorded}")
        print(f"  recomputed: {differs.recomputed}")
        print(f"{counted(found.decisions, 'decision')} before it equal the recorded ones")
    if found.difference is not None:
        raise typer.Exit(_DIFFERS)


async def _what_if(log: str, *, policy: str, placer: str, begin: str, pool: str) -> "WhatIfComparison":
    from voda.placement import PLACERS
    from voda.policies import POLICIES
    from voda.simulator.whatif.what_if import AlternativePolicy, compare_with

    choice = AlternativePolicy(
        policy=POLICIES.choose(policy).name, placer=PLACERS.choose(placer).name if placer else None
    )
    async with open_log(log) as store:
        return await compare_with(store, await _cut(store, begin), choice, pool=pool or None)


async def _cut(store: "EventStore", begin: str) -> int:
    return (await place_of(store, begin)).position if begin else 0


def _show_verdict(verdict: "WhatIfComparison", output: LogOutput) -> None:
    import msgspec
    from rich.console import Console

    from voda.cli.render.replay import comparison_tables

    if output is LogOutput.JSON:
        print(msgspec.json.encode(verdict).decode())
    else:
        Console(highlight=False).print(comparison_tables(verdict))
