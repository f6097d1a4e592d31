"""Workloads by name.

Rule: a name and a seed say everything; the same two give the same jobs on every machine.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.domain.node import Node
from voda.simulator.workload import Workload
from voda.simulator.workloads import philly, poisson, pollux, sacct, swf, user_csv, voda_exp
from voda.simulator.workloads.request import WorkloadOptions, WorkloadRequest


class WorkloadFamily(Struct, frozen=True, kw_only=True):
    load: Callable[[str, WorkloadRequest], Workload]
    variants: Sequence[str] = ()
    """The possible parts of a name after the slash; none = no slash."""
    options: frozenset[str] = frozenset()
    """Fields of `WorkloadOptions` that it uses."""


_OF_TRACES = frozenset({"begins", "ends", "jobs"})
_OF_POLLUX = tuple(f"workload-{number}" for number in range(1, 9))
CATALOGUE: Mapping[str, WorkloadFamily] = {
    "voda-exp": WorkloadFamily(load=voda_exp.load, variants=("run_1",)),
    "pollux": WorkloadFamily(load=pollux.load, variants=_OF_POLLUX),
    "pollux-2x": WorkloadFamily(load=pollux.load_double, variants=_OF_POLLUX),
    "philly": WorkloadFamily(load=philly.load, options=_OF_TRACES),
    "poisson": WorkloadFamily(load=poisson.load, options=frozenset({"jobs", "rate_per_h", "load"})),
}
FILES: Mapping[str, WorkloadFamily] = {
    ".csv": WorkloadFamily(load=user_csv.load),
    ".swf": WorkloadFamily(load=swf.load, options=_OF_TRACES),
    ".swf.gz": WorkloadFamily(load=swf.load, options=_OF_TRACES),
    ".sacct": WorkloadFamily(load=sacct.load, options=_OF_TRACES),
    ".sacct.gz": WorkloadFamily(load=sacct.load, options=_OF_TRACES),
}
"""How the path of a user's own file ends -> what reads it."""
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
    """Return a workload by name; one that ends as those of FILES is the path of a user's own file.

    `data` is the folder of the public data sets, None = VODA_DATA, ./data or ../shared/data; `nodes` is the cluster,
    None = the workload's own.

    Raises:
        InvalidInput: no such workload, an option it does not know, or a file that cannot be used.
        DataNotFound: it needs a public data set that is not on this machine.
    """
    request = WorkloadRequest(data=data, nodes=nodes, seed=seed, options=options or WorkloadOptions())
    if (own := next((each for ending, each in FILES.items() if name.endswith(ending)), None)) is not None:
        _refuse_unused(name, own, request.options)
        return own.load(name, request)
    family, slash, variant = name.partition("/")
    entry = CATALOGUE.get(family)
    if entry is None or (variant not in entry.variants if entry.variants else slash):
        raise InvalidInput(
            f"there is no workload {name[:60]!r}: expected {', '.join(workload_names())} or a path that"
            f" ends in {', '.join(FILES)}"
        )
    _refuse_unused(name, entry, request.options)
    return entry.load(variant, request)


def workload_names() -> tuple[str, ...]:
    """Return every name, the variants of a family as one: "pollux/workload-1..8"."""
    return tuple(_name_with_variants(family, entry.variants) for family, entry in CATALOGUE.items())


def _name_with_variants(family: str, variants: Sequence[str]) -> str:
    if not variants:
        return family
    return f"{family}/{variants[0]}" + (f"..{len(variants)}" if len(variants) > 1 else "")


def _refuse_unused(name: str, entry: WorkloadFamily, options: WorkloadOptions) -> None:
    defaults = WorkloadOptions()
    for field in WorkloadOptions.__struct_fields__:
        if field not in entry.options and getattr(options, field) != getattr(defaults, field):
            used = ", ".join(sorted(_SPELLED.get(option, option) for option in entry.options)) or "none"
            raise InvalidInput(f"workload {name} has no option {_SPELLED.get(field, field)}: it has {used}")
