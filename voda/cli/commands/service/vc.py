"""`voda vc`: virtual clusters, which guarantee teams GPUs with their topology."""

from typing import TYPE_CHECKING, Annotated

from voda.cli.command_group import CommandGroup, command
from voda.cli.completion import complete_pools, complete_virtual_clusters
from voda.cli.options import Output, OutputOption, ServerOptions
from voda.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from voda.cli.http.client import Client

app = CommandGroup("vc", help="Virtual clusters: which GPUs teams are guaranteed, and what is lent of them.")
PoolOption = Annotated[str, Option("--pool", help="By default all, or the first.", autocompletion=complete_pools)]
FileArgument = Annotated[str, Argument(help="The file; - is standard input.")]
DryRunOption = Annotated[bool, Option("--dry-run", help="Say what would change, and change nothing.")]
ForceOption = Annotated[
    bool, Option("--force", help="Even if jobs that run lose guarantees; they go on while GPUs are idle.")
]
RevisionOption = Annotated[
    int | None, Option("--revision", metavar="N", min=0, help="Only if they are still at this revision.")
]


@command("list")
def list_virtual_clusters(where: ServerOptions, pool: PoolOption = "", output: OutputOption = "table") -> None:
    """List virtual clusters: what they are guaranteed, what of it is in use, and what they borrow.

    \b
    Example:
      voda vc list
    """
    from voda.cli.http.client import call_server, decode
    from voda.cli.render.terminal import print_answer
    from voda.cli.render.virtual_clusters import virtual_clusters_table
    from voda.wire.virtual_clusters import VirtualClusterList

    body = call_server(where, lambda client: client.get("/virtual-clusters", _of_pool(pool)))
    items = decode(body, VirtualClusterList).items
    print_answer(body, output, [each.name for each in items], lambda: virtual_clusters_table(items))


@command("describe")
def describe(
    where: ServerOptions,
    name: Annotated[str, Argument(help="Its name.", autocompletion=complete_virtual_clusters)],
    pool: PoolOption = "",
    output: OutputOption = "table",
) -> None:
    """Show one virtual cluster: members, policy, and each kind of its cells.

    \b
    Example:
      voda vc describe vision
    """
    from voda.cli.http.client import call_server, decode, resource_path
    from voda.cli.render.terminal import print_answer
    from voda.cli.render.virtual_clusters import virtual_cluster_text
    from voda.wire.virtual_clusters import VirtualClusterView

    path = resource_path("virtual-clusters", name)
    body = call_server(where, lambda client: client.get(path, _of_pool(pool)))
    view = decode(body, VirtualClusterView)
    print_answer(body, output, [view.name], lambda: virtual_cluster_text(view))


@command("apply")
def apply(  # noqa: PLR0913 - a file, where it goes, and how
    where: ServerOptions,
    file: FileArgument,
    pool: PoolOption = "",
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    revision: RevisionOption = None,
    output: OutputOption = "table",
) -> None:
    """Give a pool the virtual clusters of a file, in place of those it has; jobs that run go on.

    Quotas that do not fit the nodes are refused. A file without virtual
    clusters removes them. docs/virtual-clusters.md says what a file holds.

    \b
    Examples:
      voda vc apply virtual-clusters.yaml --dry-run
      voda vc apply virtual-clusters.yaml
      voda vc export | voda vc apply -
    """
    from voda.cli.http.client import call_server
    from voda.cli.manifests import read_text

    query = _apply_query(pool, revision, dry_run=dry_run, force=force)
    body = read_text(file).encode()
    call_server(where, lambda client: _apply(client, body, query, output))


@command("import")
def import_hived(  # noqa: PLR0913 - a file, where it goes, and how
    where: ServerOptions,
    file: FileArgument,
    pool: PoolOption = "",
    leaf_type: Annotated[
        str, Option("--leaf-type", metavar="TYPE", help="Only cells of these devices, where a pool has one kind.")
    ] = "",
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    revision: RevisionOption = None,
    output: OutputOption = "table",
) -> None:
    """Apply the configuration of HiveD: its cells and virtual clusters, whose members are all users.

    What only HiveD's own processes need is left out, and said. voda vc export
    prints what was applied as a file to go on with.

    \b
    Examples:
      voda vc import hivedscheduler.yaml --dry-run
      voda vc import hivedscheduler.yaml --leaf-type K80 --pool k80
    """
    from voda.cells.device_types import of_device_type
    from voda.cli.http.client import call_server
    from voda.cli.manifests import read_text
    from voda.cli.render.terminal import note
    from voda.manifests.virtual_clusters import read_virtual_clusters, virtual_clusters_yaml

    read = read_virtual_clusters(read_text(file).encode())
    for key in read.left_out:
        note(f"{key} is for HiveD's own processes: it is left out")
    cells = of_device_type(read.cells, leaf_type) if leaf_type else read.cells
    query = _apply_query(pool, revision, dry_run=dry_run, force=force)
    body = virtual_clusters_yaml(cells, read.pool).encode()
    call_server(where, lambda client: _apply(client, body, query, output))


@command("export")
def export(where: ServerOptions, pool: PoolOption = "") -> None:
    """Print the cells and virtual clusters of a pool as a file for voda vc apply.

    \b
    Example:
      voda vc export > virtual-clusters.yaml
    """
    from voda.cli.http.client import call_server, decode
    from voda.manifests.virtual_clusters import virtual_clusters_yaml
    from voda.wire.virtual_clusters import SpecificationView

    body = call_server(where, lambda client: client.get("/cells/specification", _of_pool(pool)))
    view = decode(body, SpecificationView)
    print(virtual_clusters_yaml(view.specification, view.pool), end="")


def set_policy_of(client: "Client", name: str, pool: str, policy: str | None, output: Output) -> None:
    """Show the policy of a virtual cluster, or let it have another; empty: the pool's."""
    from msgspec.structs import replace

    from voda.cli.http.client import decode, resource_path
    from voda.cli.render.terminal import print_answer
    from voda.domain.cells import VirtualClusterSpec
    from voda.manifests.virtual_clusters import virtual_clusters_yaml
    from voda.wire.virtual_clusters import SpecificationView, VirtualClusterView

    path = resource_path("virtual-clusters", name)
    body = client.get(path, _of_pool(pool))
    before = after = decode(body, VirtualClusterView)
    if policy is not None:
        of_pool = _of_pool(before.pool)
        found = decode(client.get("/cells/specification", of_pool), SpecificationView)
        clusters = dict(found.specification.virtual_clusters)
        clusters[name] = replace(clusters.get(name, VirtualClusterSpec()), policy=policy)
        text = virtual_clusters_yaml(replace(found.specification, virtual_clusters=clusters), before.pool)
        # Changed by somebody else meanwhile, it is refused.
        _put(client, text.encode(), _apply_query(before.pool, found.revision, dry_run=False, force=False))
        body = client.get(path, of_pool)
        after = decode(body, VirtualClusterView)
    change = after.policy if policy is None or after.policy == before.policy else f"{before.policy} -> {after.policy}"
    print_answer(body, output, [name], lambda: f"virtual cluster {name} of pool {after.pool}: policy {change}")


def _of_pool(pool: str) -> dict[str, str | int | list[str]]:
    return {"pool": pool} if pool else {}


def _put(client: "Client", body: bytes, query: dict[str, str | int | list[str]]) -> bytes:
    from voda.cli.http.client import HttpCall

    headers = {"Content-Type": "application/yaml"}
    return client.ask(HttpCall(method="PUT", path="/virtual-clusters", params=query, headers=headers, body=body)).body


def _apply_query(pool: str, revision: int | None, *, dry_run: bool, force: bool) -> dict[str, str | int | list[str]]:
    given = _of_pool(pool) | ({"revision": revision} if revision is not None else {})
    flags = {"dry_run": dry_run, "force": force}
    return given | {name: "true" for name, is_set in flags.items() if is_set}


def _apply(client: "Client", body: bytes, query: dict[str, str | int | list[str]], output: Output) -> None:
    from voda.cli.http.client import decode
    from voda.cli.render.terminal import note, print_answer
    from voda.cli.render.virtual_clusters import apply_text
    from voda.wire.virtual_clusters import ApplyView

    answer = _put(client, body, query)
    view = decode(answer, ApplyView)
    for warning in view.warnings:
        note(warning)
    print_answer(answer, output, [view.pool], lambda: apply_text(view, is_dry_run="dry_run" in query))
