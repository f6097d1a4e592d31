"""`voda submit`: submits manifests, or a program without one, to the server."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from voda.cli.options import OutputOption, ServerOptions, command, complete_pools, provided
from voda.cli.program import ProgramCommand, ProgramOptions, words_after_dashes
from voda.domain.errors import AlreadyExists, InvalidField, InvalidInput

if TYPE_CHECKING:
    from voda.cli.manifests import Document

_MOST_NAMES = 100
"""That are tried for a program whose name nobody chose: train, train-2, ..."""


@command("submit", cls=ProgramCommand)
def submit(  # noqa: PLR0913 - a command's options are its parameters
    ctx: typer.Context,
    where: ServerOptions,
    options: ProgramOptions,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE... | -- PROGRAM...", help="Manifests; - is standard input.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the manifests and submit nothing.")] = False,
    prints: Annotated[bool, typer.Option("--print", help="Print the program's manifest and submit nothing.")] = False,
    name: Annotated[str, typer.Option("--name", help="Name of the job, instead of the manifest's.")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace for manifests that name none.")] = "",
    least: Annotated[int | None, typer.Option("--min", min=1, help="Fewest replicas.")] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Most replicas.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Higher goes first, whatever the policy.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=0, help="Epochs to train.")] = None,
    pool: Annotated[
        str | None, typer.Option("--pool", help="Pool: the type of accelerator.", autocompletion=complete_pools)
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="A label, for -l of get, delete, wait; repeatable."),
    ] = None,
    array: Annotated[
        str,
        typer.Option(
            "--array", metavar="0-99%10", help="Many jobs of it, told apart by VODA_ARRAY_TASK_ID; %10: 10 at once."
        ),
    ] = "",
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after", metavar="JOB[:ok|any]", help="Start once JOB has completed, or with :any ended; repeatable."
        ),
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
    """Submit a program, or manifests of MPIJobs and PyTorchJobs.

    What stands after -- is a program. mpirun, torchrun or neither starts it, as
    --launcher says, else as its imports suggest. Manifests are YAML or JSON, also
    several in one file; voda warns about fields that the cluster does not honour.
    If the answer is lost, voda asks again and still submits the job only once.
    With -w, the exit status is 1 if a job fails or is canceled.

    \b
    Examples:
      voda submit -- python train.py --lr 0.1
      voda submit --workers 1-4 --env SEED=7 --time 4h -- python train.py
      voda submit --workers 2 --image train:1 --print -- python train.py
      voda submit job.yaml --name resnet-8 --min 1 --max 8 --priority 5 -w
      voda submit *.yaml --dry-run --label team=vision
      voda submit --name sweep --array 0-99%10 -- python train.py
      voda submit --after sweep --after prep:any -- python report.py
      helm template jobs | voda submit - -n vision -o name
    """
    from voda.cli.http.client import call_server
    from voda.cli.manifests import key_and_value, with_labels
    from voda.cli.program import manifest_text
    from voda.cli.watch.submitted_jobs import BatchSubmit
    from voda.clock import SystemClock

    sizes, others = (
        {"min-replicas": least, "max-replicas": most},
        {"priority": priority, "epochs": epochs, "pool": pool},
    )
    several = {"array": array or None, "after": ",".join(after) if after else None}
    given = provided(**sizes, **others, **several)
    annotations = {f"voda.dev/{word}": str(value) for word, value in given.items()}
    words = words_after_dashes(ctx)
    labels = dict(map(key_and_value, label or ()))

    def send(documents: Sequence["Document"]) -> bool:
        submitting = BatchSubmit(documents, key=key or SystemClock().new_id(), is_dry_run=dry_run, output=output)
        return call_server(where, submitting.follow if watch and not dry_run else submitting.run)

    if words is None:
        options.refuse_any(is_printed=prints)
        has_completed = send([with_labels(one, labels) for one in _of_files(files or [], name, namespace, annotations)])
    else:
        _refuse_manifest_options(files, sizes)
        document = with_labels(_of_program(words, options, name, namespace, annotations), labels)
        if prints:
            print(manifest_text(document.manifest), end="")
            return
        has_completed = _send_program(send, document, has_image=bool(options.image), is_named=bool(name or key))
    if not has_completed:
        raise typer.Exit(1)


def _of_files(files: Sequence[str], name: str, namespace: str, annotations: Mapping[str, str]) -> list["Document"]:
    from voda.cli.manifests import documents, in_namespace, with_name_and_annotations

    if not files:
        raise InvalidInput("nothing to submit: give a manifest, or a program after --: voda submit -- python train.py")
    if name and len(files) > 1:
        raise InvalidInput(f"--name is for one job: got {len(files)} files")
    for file in files:
        if file.endswith(".py"):
            raise InvalidInput(f"{file} is a Python program, not a manifest: voda submit -- python {file}")
    found = [document for file in files for document in documents(file)]
    if name and len(found) > 1:
        raise InvalidInput(f"--name is for one job: {files[0]} holds {len(found)}")
    return [
        with_name_and_annotations(in_namespace(document, namespace), name=name, annotations=annotations)
        for document in found
    ]


def _refuse_manifest_options(files: Sequence[str] | None, sizes: Mapping[str, int | None]) -> None:
    if files:
        raise InvalidInput(f"{files[0]} stands before --, and a program after it: submit one, then the other")
    if provided(**sizes):
        raise InvalidInput("--min and --max are for manifests: give a program --workers MIN-MAX")


def _of_program(
    words: Sequence[str], options: ProgramOptions, name: str, namespace: str, annotations: Mapping[str, str]
) -> "Document":
    from voda.cli.manifests import in_namespace, with_name_and_annotations
    from voda.cli.program import program_document
    from voda.cli.render.terminal import note

    made = program_document(words, options, name=name)
    note(made.note)
    return with_name_and_annotations(in_namespace(made.document, namespace), name="", annotations=annotations)


def _send_program(
    send: Callable[[Sequence["Document"]], bool], document: "Document", *, has_image: bool, is_named: bool
) -> bool:
    """Submit a program, under the first free name of train, train-2, ... where the user chose none."""
    from voda.cli.manifests import with_name_and_annotations

    base = document.manifest["metadata"]["name"]
    for number in range(1, _MOST_NAMES):
        name = base if number == 1 else f"{base}-{number}"
        try:
            return send([with_name_and_annotations(document, name=name, annotations={})])
        except AlreadyExists:
            if is_named:
                raise
        except InvalidField as error:
            if has_image or not error.field.endswith(".image"):
                raise
            raise InvalidInput(
                "this voda schedules a Kubernetes cluster, where a program runs in a container: name its image with"
                " --image IMAGE"
            ) from error
    raise AlreadyExists(f"{base} to {base}-{_MOST_NAMES - 1} are names of live jobs: choose another one with --name")
