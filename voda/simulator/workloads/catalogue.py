"""Workloads by name.

Rule: a name and a seed say everything; the same two give the same jobs on every machine.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.domain.node import Node
from voda.simulator.workload import Workload
from voda.simulator.workloads import philly, poisson, pollux, user_csv, voda_exp
from voda.simulator.workloads.request import WorkloadOptions, WorkloadRequest


class WorkloadFamily(Struct, frozen=True, kw_only=True):
    """One family of workloads."""

    load: Callable[[str, WorkloadRequest], Workload]
    """(variant, request) -> workload."""
    variants: Sequence[str] = ()
    """The possible parts of a name after the slash; none = no slash."""
    about: str
    options: frozenset[str] = frozenset()
    """Fields of `WorkloadOptions` that it uses."""


CATALOGUE: Mapping[str, WorkloadFamily] = {
    "voda-exp": WorkloadFamily(
        load=voda_exp.load,
        variants=("run_1",),
        about="24 jobs of four models as measured on 3 nodes of 4 GPUs (built in)",
    ),
    "pollux": WorkloadFamily(
        load=pollux.load,
        variants=tuple(f"workload-{number}" for number in range(1, 9)),
        about="160 jobs of six applications in 8 hours, on 16 nodes of 4 GPUs (public data)",
    ),
    "pollux-2x": WorkloadFamily(
        load=pollux.load_double,
        variants=tuple(f"workload-{number}" for number in range(1, 9)),
        about="the same at double load: 320 jobs (public data)",
    ),
    "philly": WorkloadFamily(
        load=philly.load,
        about="82,247 jobs of Microsoft's cluster in 2017, or a window of them (public data)",
        options=frozenset({"begins", "ends", "jobs"}),
    ),
    "poisson": WorkloadFamily(
        load=poisson.load,
        about="jobs drawn like Philly's, arriving at random (built in)",
        options=frozenset({"jobs", "rate_per_h", "load", "gpu_mix"}),
    ),
}

_SPELLED = {"begins": "from", "ends": "to", "rate_per_h": "rate"}
"""Options whose name for users differs from the field, which avoids a keyword or has its unit."""


def load_workload(
    name: str,
    *,
    data: Path | None = None,
    nodes: tuple[Node, ...] | None = None,
    seed: int = 0,
    options: WorkloadOptions | None = None,
) -> Workload:
    """Return a workload by name; a name that ends in ".csv" is the user's own file.

    Args:
        name: see `workload_names`.
        data: folder of the public data sets; None = VODA_DATA, ./data or ../shared/data.
        nodes: the cluster; None = the workload's own.
        seed: of the random draws.
        options: see `WorkloadOptions`.

    Raises:
        InvalidInput: no such workload, an option it does not know, or a file that cannot be used.
        DataNotFound: it needs a public data set that is not on this machine.
    """
    request = WorkloadRequest(data=data, nodes=nodes, seed=seed, options=options or WorkloadOptions())
    if name.endswith(".csv"):
        return user_csv.load(name, request)
    family, slash, variant = name.partition("/")
    entry = CATALOGUE.get(family)
    if entry is None or (variant not in entry.variants if entry.variants else slash):
        raise InvalidInput(
            f"there is no workload {name[:60]!r}: expected {', '.join(workload_names())} or a path to a .csv file"
        )
    _refuse_unused(name, entry, request.options)
    return entry.load(variant, request)


def workload_names() -> tuple[str, ...]:
    """Return every name, the variants of a family as one: "pollux/workload-1..8"."""
    return tuple(_spelled(family, entry.variants) for family, entry in CATALOGUE.items())


def _spelled(family: str, variants: Sequence[str]) -> str:
    if not variants:
        return family
    return f"{family}/{variants[0]}" + (f"..{len(variants)}" if len(variants) > 1 else "")


def _refuse_unused(name: str, entry: WorkloadFamily, options: WorkloadOptions) -> None:
    defaults = WorkloadOptions()
    for field in WorkloadOptions.__struct_fields__:
        if field not in entry.options and getattr(options, field) != getattr(defaults, field):
            used = ", ".join(sorted(_SPELLED.get(option, option) for option in entry.options)) or "none"
            raise InvalidInput(f"workload {name} has no option {_SPELLED.get(field, field)}: it has {used}")
