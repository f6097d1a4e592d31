"""`voda simulate`: a workload under one policy or several, compared."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import command
from voda.cli.execution import run_async
from voda.cli.log_files import LogOutputOption, print_json
from voda.cli.parameters import Option
from voda.cli.virtual_cluster_simulation import VirtualClusterArguments, simulate_virtual_clusters
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.simulator.compare import ComparedRun
    from voda.simulator.engine import ProgressCallback, SimulationOptions
    from voda.simulator.report.comparison_table import RunOutcome
    from voda.simulator.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadArguments:
    data: Annotated[
        Path | None, Option(help="Folder of the public data sets; by default VODA_DATA, ./data, ../shared/data.")
    ] = None
    begins: Annotated[str, Option("--from", help="Traces: first day or instant.")] = ""
    ends: Annotated[str, Option("--to", help="Traces: day or instant to stop before.")] = ""
    jobs: Annotated[int, Option(min=0, help="Traces, poisson: number of jobs; 0 = all of a trace, 200 of poisson.")] = 0
    rate: Annotated[float, Option(min=0, help="Poisson: submissions per hour; 0 = as --load needs.")] = 0.0
    load: Annotated[float, Option(min=0.01, help="Poisson: GPU time asked for / there is.")] = 0.7
    sizes: Annotated[
        str | None,
        Option("--sizes", metavar="SIZES", help="Numbers of workers at which jobs run, within their bounds: 1,2,4,8."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterArguments:
    ratelimit: Annotated[float, Option(min=0, help="Between plans that interrupt jobs; 0 = none.", is_span=True)] = 30.0
    fair_share: Annotated[str, Option(help="As in voda settings: users, or weights such as ann=2,bob=0.5.")] = ""
    fair_share_half_life: Annotated[float, Option(min=60, help="As in voda settings.", is_span=True)] = 86_400.0
    node_mtbf: Annotated[
        float, Option(min=0, help="Mean time between failures of a node; 0 = never.", is_span=True)
    ] = 0.0
    node_repair: Annotated[float, Option(min=1, help="Mean time until it is back.", is_span=True)] = 1800.0
    worker_mtbf: Annotated[float, Option(min=0, help="Mean time between failures of any worker.", is_span=True)] = 0.0


@command("simulate")
def simulate(  # noqa: PLR0913 - a command's options are its parameters
    *,
    workload: Annotated[str, Option("--workload", "-w", help="Which jobs.")] = "voda-exp/run_1",
    policy: Annotated[
        list[str] | None,
        Option(
            "--policy", "-p", metavar="NAME[:PARAMETER=VALUE,...]", help="Repeatable; elastic-fifo if none is named."
        ),
    ] = None,
    every: Annotated[bool, Option("--all", help="Every policy there is.")] = False,
    placer: Annotated[
        list[str] | None, Option(help="Placer: steady, packed, frugal; repeatable; steady if none is named.")
    ] = None,
    nodes: Annotated[str, Option(help="Cluster such as 16x4 or 2x8,4x4; by default the workload's.")] = "",
    seed: Annotated[int, Option(help="Of whatever is drawn.")] = 0,
    out: Annotated[Path | None, Option(help="Folder for logs, results.json and index.html.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print the figures as JSON; so does -o json.")] = False,
    output: LogOutputOption = "table",
    part: WorkloadArguments,
    clusters: VirtualClusterArguments,
    cluster: ClusterArguments,
) -> None:
    """Run a workload on a simulated cluster, and compare policies.

    It is the scheduler itself that runs, on a virtual clock: event log, policy,
    placement, plan and reconciler are those of production; only the cluster is
    simulated.

    \b
    Examples:
      voda simulate --workload voda-exp/run_1 --all --out out/voda-exp
      voda simulate --workload pollux/workload-6 --policy afs-l --policy ffdl
      voda simulate --workload philly --jobs 2000 --nodes 32x8 --json
      voda simulate --policy tiresias --policy tiresias:demote_gpu_s=600
      voda simulate --workload poisson --node-mtbf 20000 --seed 7
      voda simulate --workload my-jobs.csv --nodes 4x8
      voda simulate -w philly --nodes 279x8 --virtual-clusters FILE --private

    \b
    Workloads: voda-exp/run_1, pollux/workload-N, pollux-2x/workload-N, philly,
    poisson, or a path: jobs.csv, trace.swf, or jobs.sacct from sacct --parsable2.
    docs/workloads.md tells what is read of them and how to get the public data,
    docs/metrics.md what the figures mean.
    """
    as_json = as_json or output == "json"
    if clusters.virtual_clusters is None and (clusters.private or clusters.mode):
        raise InvalidInput("--private and --mode go with --virtual-clusters FILE")
    compared = _compared(policy, placer, every=every)
    loaded, options = _loaded(workload, part, nodes=nodes, seed=seed), _options(cluster, seed)
    _warn_of_absent_users(options.settings.fair_share, loaded)
    if clusters.virtual_clusters is not None:
        policies = _plain_policies(compared)
        simulate_virtual_clusters(loaded, policies, options, clusters, out=out, as_json=as_json)
    else:
        _show(_run(loaded, compared, options, out), seed=seed, out=out, as_json=as_json)


def _compared(policy: Sequence[str] | None, placer: Sequence[str] | None, *, every: bool) -> "Sequence[ComparedRun]":
    from voda.simulator.compare import contestants

    if every and policy:
        raise InvalidInput("--all and --policy exclude each other: name the policies, or take them all")
    return contestants(policies=() if every else policy or ("elastic-fifo",), placers=placer or ("steady",))


def _loaded(workload: str, part: WorkloadArguments, *, nodes: str, seed: int) -> "Workload":
    from voda.domain.sizes.text import parse_sizes
    from voda.simulator.workload import at_sizes
    from voda.simulator.workloads.catalogue import load_workload
    from voda.simulator.workloads.request import WorkloadOptions, parse_nodes

    options = WorkloadOptions(begins=part.begins, ends=part.ends, jobs=part.jobs, rate_per_h=part.rate, load=part.load)
    cluster = parse_nodes(nodes) if nodes else None
    loaded = load_workload(workload, data=part.data, nodes=cluster, seed=seed, options=options)
    for sentence in loaded.left_out:
        print(f"{loaded.name}: {sentence}", file=sys.stderr)
    return loaded if part.sizes is None else at_sizes(loaded, parse_sizes(part.sizes, "--sizes"))


def _warn_of_absent_users(fair_share: str, workload: "Workload") -> None:
    from voda.domain.settings import user_weights

    users = {arrival.spec.user for arrival in workload.arrivals}
    for user in user_weights(fair_share) or ():
        if user not in users:
            print(f"warning: --fair-share: no job of {workload.name} is of user {user!r}", file=sys.stderr)


def _plain_policies(compared: "Sequence[ComparedRun]") -> Sequence[str]:
    for each in compared:
        if each.parameters or each.placer != "steady":
            raise InvalidInput("--virtual-clusters takes policies as they are, and no --placer")
    return [each.policy for each in compared]


def _options(cluster: ClusterArguments, seed: int) -> "SimulationOptions":
    from voda.domain.settings import Settings, checked_fair_share
    from voda.simulator.engine import SimulationOptions
    from voda.simulator.failures import FailureRates

    never = float("inf")
    rates = FailureRates(
        node_mtbf_s=cluster.node_mtbf or never,
        node_repair_s=cluster.node_repair,
        worker_mtbf_s=cluster.worker_mtbf or never,
    )
    settings = Settings(
        ratelimit_s=cluster.ratelimit,
        fair_share=checked_fair_share(cluster.fair_share),
        fair_share_half_life_s=cluster.fair_share_half_life,
    )
    return SimulationOptions(settings=settings, seed=seed, failures=rates)


def _run(
    workload: "Workload", compared: "Sequence[ComparedRun]", options: "SimulationOptions", out: Path | None
) -> "Sequence[RunOutcome]":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from voda.simulator.compare import compare

    columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:

        def started(contestant: "ComparedRun") -> "ProgressCallback":
            task = progress.add_task(contestant.folder, total=len(workload.arrivals))
            return lambda finished, _: progress.update(task, completed=finished)

        return run_async(compare(workload, compared, options, out=out, progress=started))


def _show(runs: "Sequence[RunOutcome]", *, seed: int, out: Path | None, as_json: bool) -> None:
    from rich.console import Console

    from voda.simulator.report.comparison_table import comparison_table
    from voda.simulator.report.pages import write_report

    page = write_report(out, runs, command=shlex.join(["voda", *sys.argv[1:]]), seed=seed) if out else None
    if as_json:
        print_json({"runs": [run.result for run in runs]})
        return
    console = Console()
    console.print(comparison_table(runs, console.width))
    if page is not None:
        console.print(f"Pictures: {page}", soft_wrap=True, highlight=False)
        waited = max(runs[0].history.finished, key=lambda job: job.queueing_s, default=None)
        command = shlex.join(["voda", "explain", str(runs[0].log), waited.job_id if waited else "JOB"])
        console.print(f"Explore:  {command}", soft_wrap=True, highlight=False, markup=False)
