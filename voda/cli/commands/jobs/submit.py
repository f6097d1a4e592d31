"""`voda submit`: submits manifests to the server."""

from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.options import OutputOption, ServerOptions, command, complete_pools, provided
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from voda.cli.manifests import Document


@command("submit")
def submit(  # noqa: PLR0913 - a command's options are its parameters
    where: ServerOptions,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Manifests; - is standard input.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the manifests and submit nothing.")] = False,
    name: Annotated[str, typer.Option("--name", help="Name of the job, instead of the manifest's.")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace for manifests that name none.")] = "",
    least: Annotated[int | None, typer.Option("--min", min=1, help="Fewest replicas.")] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Most replicas.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Higher goes first, whatever the policy.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=0, help="Epochs to train.")] = None,
    pool: Annotated[
        str | None, typer.Option("--pool", help="Pool: the type of accelerator.", autocompletion=complete_pools)
    ] = None,
    key: Annotated[
        str,
        typer.Option(
            "--idempotency-key", metavar="KEY", help="Submits with the same key count once; by default a new key."
        ),
    ] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow the jobs until they end.")] = False,
    output: OutputOption = "table",
) -> None:
    """Submit MPIJobs and PyTorchJobs: YAML or JSON, also several in one file.

    If the answer is lost, voda asks again and still submits the job only once.
    It warns about manifest fields that the cluster does not honour. With -w, the
    exit status is 1 if a job fails or is canceled.

    \b
    Examples:
      voda submit job.yaml
      voda submit job.yaml --name resnet-8 --min 1 --max 8 --priority 5 -w
      voda submit *.yaml --dry-run
      voda submit job.yaml -n vision
      helm template jobs | voda submit - -o name
    """
    from voda.cli.http.client import call_server
    from voda.cli.manifests import documents, in_namespace, with_name_and_annotations
    from voda.cli.watch.submitted_jobs import BatchSubmit
    from voda.clock import SystemClock

    if name and len(files) > 1:
        raise InvalidInput(f"--name is for one job: got {len(files)} files")
    annotations = {
        f"voda.dev/{word}": str(value)
        for word, value in provided(
            **{"min-replicas": least, "max-replicas": most, "priority": priority, "epochs": epochs, "pool": pool}
        ).items()
    }
    found: list[Document] = [document for file in files for document in documents(file)]
    if name and len(found) > 1:
        raise InvalidInput(f"--name is for one job: {files[0]} holds {len(found)}")
    asked = [
        with_name_and_annotations(in_namespace(document, namespace), name=name, annotations=annotations)
        for document in found
    ]
    submitting = BatchSubmit(asked, key=key or SystemClock().new_id(), is_dry_run=dry_run, output=output)
    if not call_server(where, submitting.follow if watch and not dry_run else submitting.run):
        raise typer.Exit(1)
