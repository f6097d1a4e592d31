"""`voda get`: jobs, nodes and pools as lists."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import command
from voda.cli.completion import complete_pools, things
from voda.cli.options import OutputOption, SelectorOption, ServerOptions
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.cli.watch.lists import JobFilters, ListSource

_KINDS = {"job": "jobs", "jobs": "jobs", "node": "nodes", "nodes": "nodes", "pool": "pools", "pools": "pools"}
_OTHER_KINDS = {"po", "pod", "pods", "mpijob", "mpijobs", "pytorchjob", "pytorchjobs", "policy", "policies", "all"}
"""What users of kubectl may try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """What is listed, and how."""

    every: Annotated[bool, Option("--all", "-a", help="List ended jobs too, after the live ones.")] = False
    phase: Annotated[list[str] | None, Option("--phase", help="Only jobs in this STATE, or `live`; repeatable.")] = None
    pool: Annotated[str, Option("--pool", help="Only this pool.", autocompletion=complete_pools)] = ""
    user: Annotated[str, Option("--user", "-u", help="Only jobs of this user.")] = ""
    mine: Annotated[bool, Option("--mine", help="Only your jobs.")] = False
    namespace: Annotated[str, Option("--namespace", "-n", help="Only jobs in this namespace.")] = ""
    selector: SelectorOption = ""
    sort: Annotated[
        str, Option("--sort", metavar="[-]FIELD", help="submitted_at, priority, name, phase or replicas.")
    ] = ""
    tasks: Annotated[bool, Option("--tasks", help="List each task of an array; as -o wide does.")] = False
    limit: Annotated[int, Option("--limit", min=0, help="Most jobs to list; 0 = all.")] = 500
    watch: Annotated[bool, Option("--watch", "-w", help="Keep showing changes.")] = False
    output: OutputOption = "table"

    def filters(self, names: Sequence[str]) -> "JobFilters":
        """Return the filters of GET /jobs; names alone mean ended jobs, too."""
        phases = [_phase(word) for word in self.phase or ()] or ([] if self.every or names else ["live"])
        given: JobFilters = {"pool": self.pool, "user": self.user, "namespace": self.namespace, "sort": self.sort}
        return {name: value for name, value in {**given, "phase": phases, "selector": self.selector}.items() if value}

    def refuse_for(self, kind: str) -> None:
        """Raise InvalidInput on the first option that is given and says nothing of nodes or pools."""
        of_all = {"pool", "watch", "output"}
        options = [one for one in fields(self) if one.name not in of_all]
        if given := next((one.name for one in options if getattr(self, one.name) != one.default), ""):
            option = "all" if given == "every" else given
            raise InvalidInput(f"--{option} chooses jobs: {kind} have --pool alone")


@command("get", aliases=("ps", "ls"))
def get(
    where: ServerOptions,
    options: ListOptions,
    what: Annotated[
        list[str] | None,
        Argument(metavar="jobs|nodes|pools|NAME", help="What to list; by default all jobs.", autocompletion=things),
    ] = None,
) -> None:
    """List jobs, nodes or pools.

    Lists live jobs; with --all, ended jobs too; of several options, what matches
    all of them. REPLICAS is current/minimum/maximum; 2>3/1/4 means 2 now and 3
    planned. QUEUE 1 starts next. An array is one line, such as sweep[0-99];
    --tasks lists each task.

    \b
    Examples:
      voda get
      voda get -o wide --watch
      voda get --all --sort -submitted_at --user ada
      voda get -l team=vision,stage!=test
      voda get resnet-7 -o yaml
      voda get sweep --tasks
      voda get nodes
      voda get pools -o json
      voda delete $(voda get --phase Waiting -o name)
    """
    from voda.cli.watch.refresh import show_list

    show_list(where, _listed(what or (), options), options.output, watches=options.watch)


def _listed(what: Sequence[str], options: ListOptions) -> "ListSource":
    from voda.cli.render.terminal import console
    from voda.cli.watch.lists import JobSource

    kind, names = _kind_and_names(what)
    if kind != "jobs":
        options.refuse_for(kind)
    if options.mine and options.user:
        raise InvalidInput(f"--mine and --user {options.user} name two users: give one of them")
    is_ordered = bool(options.sort or options.phase) or options.output in ("json", "yaml")
    source = _source(kind, names, options.filters(names), options.limit, options.every and not is_ordered)
    if isinstance(source, JobSource):
        source.is_mine = options.mine
        source.has_groups = options.output == "table" and not options.tasks
        is_seen = options.output in ("table", "wide") and console().is_terminal
        source.names_failures = is_seen and not options.every and not options.watch
    return source


@command("queue", hidden=True)
def queue(
    where: ServerOptions,
    pool: Annotated[str, Option("--pool", help="Only this pool.", autocompletion=complete_pools)] = "",
    user: Annotated[str, Option("--user", "-u", help="Only jobs of this user.")] = "",
    selector: SelectorOption = "",
    output: OutputOption = "table",
) -> None:
    """List the jobs that wait, those of high priority first.

    \b
    Examples:
      voda queue
      voda queue --user ada -o wide
    """
    from voda.cli.watch.refresh import show_list

    filters: JobFilters = {"phase": ["Submitted", "Waiting"], "sort": "-priority"}
    chosen = {"pool": pool, "user": user, "selector": selector}
    source = _source("jobs", (), {**filters, **{name: value for name, value in chosen.items() if value}}, 0, False)
    show_list(where, source, output)


def _phase(word: str) -> str:
    """Return a phase in its proper case."""
    return word.lower() if word.lower() == "live" else word.capitalize()


def _kind_and_names(what: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the kind and the names; `voda get jobs nodes` is the job called nodes."""
    if what and what[0] in _KINDS:
        return _KINDS[what[0]], tuple(what[1:])
    if what and what[0] in _OTHER_KINDS:
        raise InvalidInput(f"{what[0]} cannot be listed: expected jobs, nodes, pools or the name of a job")
    return "jobs", tuple(what)


def _source(kind: str, names: Sequence[str], filters: "JobFilters", limit: int, live_first: bool) -> "ListSource":
    from voda.cli.watch.lists import JobSource, list_nodes, list_pools

    if kind == "nodes":
        return partial(list_nodes, names=names, pool=str(filters.get("pool", "")))
    if kind == "pools":
        return partial(list_pools, names=names, pool=str(filters.get("pool", "")))
    return JobSource(names, filters, limit=limit, live_first=live_first)
