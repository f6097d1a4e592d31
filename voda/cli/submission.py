"""What is submitted, and how: the options of `voda submit`, and what they make of manifests and programs.

Rule: everything that is wrong with what was read is known before anything is sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from voda.cli.completion import complete_pools, complete_virtual_clusters
from voda.cli.options import Output, ServerOptions, provided
from voda.cli.parameters import Option
from voda.domain.errors import AlreadyExists, InvalidField, InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from voda.cli.manifests import Document, ReadManifests
    from voda.cli.program import ProgramOptions

_MOST_NAMES = 100
"""That are tried for a program whose name nobody chose: train, train-2, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What is changed of the jobs."""

    name: Annotated[str, Option("--name", help="Name of the job, instead of the manifest's.")] = ""
    namespace: Annotated[str, Option("--namespace", "-n", help="Namespace for manifests that name none.")] = ""
    least: Annotated[int | None, Option("--min", min=1, help="Fewest replicas.")] = None
    most: Annotated[int | None, Option("--max", min=1, help="Most replicas.")] = None
    priority: Annotated[
        int | None,
        Option(
            "--priority",
            help="Higher goes first; -1 with virtual clusters: opportunistic.",
            default_text="0, or the manifest's",
        ),
    ] = None
    restartable: Annotated[
        Literal["never", "always"] | None,
        Option(
            "--restartable",
            help="never: it begins with what it requests, and is not stopped for others, resized or begun again.",
            default_text="always, or the manifest's",
        ),
    ] = None
    epochs: Annotated[int | None, Option("--epochs", min=0, help="Epochs to train.")] = None
    pool: Annotated[
        str | None,
        Option(
            "--pool",
            help="Pool: the type of accelerator; a100,v100 or any: where it starts first.",
            autocompletion=complete_pools,
            is_once=True,
        ),
    ] = None
    virtual_cluster: Annotated[
        str | None,
        Option(
            "--vc",
            metavar="NAME",
            help="Virtual cluster that guarantees its GPUs.",
            default_text="your only one",
            autocompletion=complete_virtual_clusters,
        ),
    ] = None
    pin: Annotated[
        str | None, Option("--pin", metavar="ID", help="Pinned cell of its virtual cluster to run in, and only there.")
    ] = None
    device_class: Annotated[
        str, Option("--device-class", metavar="CLASS", help="Kubernetes: claim the GPUs, of this DeviceClass.")
    ] = ""
    label: Annotated[
        list[str] | None,
        Option("--label", "-l", metavar="KEY=VALUE", help="A label, for -l of get, delete, wait; repeatable."),
    ] = None
    array: Annotated[
        str,
        Option(
            "--array", metavar="0-99%10", help="Many jobs of it, told apart by VODA_ARRAY_TASK_ID; %10: 10 at once."
        ),
    ] = ""
    after: Annotated[
        list[str] | None,
        Option("--after", metavar="JOB[:ok|any]", help="Start once JOB has completed, or with :any ended; repeatable."),
    ] = None

    def applied(self, document: "Document") -> "Document":
        """Return a manifest with what the options say, but for the name; raises InvalidInput."""
        from voda.cli.manifests import in_namespace, key_and_value, with_labels, with_name_and_annotations

        document = with_labels(in_namespace(document, self.namespace), dict(map(key_and_value, self.label or ())))
        return with_name_and_annotations(document, name="", annotations=self._annotations())

    def _annotations(self) -> dict[str, str]:
        given = provided(
            **{"min-replicas": self.least, "max-replicas": self.most, "array": self.array or None},
            **{"device-class": self.device_class or None},
            priority=self.priority,
            restartable=self.restartable,
            epochs=self.epochs,
            pool=self.pool,
            **{"virtual-cluster": self.virtual_cluster, "pinned-cell": self.pin},
            after=",".join(self.after) if self.after else None,
        )
        return {f"voda.dev/{word}": str(value) for word, value in given.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """How it is submitted."""

    dry_run: Annotated[bool, Option("--dry-run", help="Check the manifests and submit nothing.")] = False
    prints: Annotated[bool, Option("--print", help="Print the program's manifest and submit nothing.")] = False
    key: Annotated[
        str,
        Option("--idempotency-key", metavar="KEY", help="Submits with the same key count once; by default a new key."),
    ] = ""
    watch: Annotated[bool, Option("--watch", "-w", help="Follow the jobs until they end.")] = False
    follow: Annotated[
        bool, Option("--follow", "-f", help="Print what the job prints, and end with the exit code of its program.")
    ] = False


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """One call of the command."""

    where: ServerOptions
    job: JobOptions
    how: SubmitOptions
    output: Output

    def submit_files(self, files: Sequence[str], *, deepspeed: "Path | None" = None) -> bool:
        """Submit manifests once all have been checked, and return whether all jobs that were followed completed."""
        from voda.cli.manifests import changed, jobs_of, read_manifests, with_name_and_annotations, with_sizes_of
        from voda.cli.render.terminal import note
        from voda.programs.deepspeed import REMOVED

        name = self.job.name
        _refuse_odd_files(files, name)
        read, others = jobs_of(read_manifests(files))
        if others:
            note(f"left out, for voda makes jobs alone (kubectl apply makes them): {', '.join(others)}")
        read = changed(read, self.job.applied)
        if deepspeed is not None:
            note(REMOVED)
            read = changed(read, lambda one: with_sizes_of(one, deepspeed))
        if name and (count := len(read.documents) + len(read.refused)) > 1:
            raise InvalidInput(f"--name is for one job: {files[0]} holds {count}")
        return self._send(changed(read, lambda one: with_name_and_annotations(one, name=name, annotations={})))

    def submit_program(self, words: Sequence[str], options: "ProgramOptions") -> bool:
        """Submit a program, or print its manifest; return whether the job completed, where it was followed."""
        from voda.cli.http.port_forward import is_here
        from voda.cli.program import kept_document, manifest_text, program_document
        from voda.cli.render.terminal import note

        if self.job.least is not None or self.job.most is not None:
            raise InvalidInput("--min and --max are for manifests: give a program --workers, such as 1-4")
        is_asked = bool(options.image) and not self.how.prints and not self.job.device_class
        made = program_document(
            words,
            options,
            name=self.job.name,
            runs_here=is_here(self.where),
            is_kept=not (options.live or self.how.prints or self.how.dry_run),
            gpu_resource=self._gpu_resource() if is_asked else "",
        )
        for line in made.notes(is_submitted=not self.how.prints):
            note(line)
        if self.how.prints:
            manifest = self.job.applied(kept_document(made, options)).manifest
            print(manifest_text(manifest, has_image=bool(options.image)), end="")
            return True
        self._clear_code()
        return self._send_program(self.job.applied(made.document), has_image=bool(options.image), foreign=made.foreign)

    def _clear_code(self) -> None:
        """Delete the oldest of the code that was kept, where it is a lot, but what live jobs run."""
        from voda import config
        from voda.cli.http.client import call_server
        from voda.cli.watch.lists import fetch_jobs
        from voda.programs.kept_code import clear, has_too_many

        store = config.code_folder()
        if has_too_many(store):
            live = call_server(self.where, lambda client: fetch_jobs(client, {"phase": "live"}, limit=0)).items
            clear(store, frozenset(job.kept_script for job in live if job.kept_script))

    def _gpu_resource(self) -> str:
        """Return by what pods of the server ask for GPUs; empty: it is one machine."""
        from voda.cli.http.client import call_server, decode
        from voda.wire.base import ServiceView

        return call_server(self.where, lambda client: decode(client.get(""), ServiceView).gpu_resource)

    def _send_program(self, document: "Document", *, has_image: bool, foreign: str) -> bool:
        """Submit a program, under the first free name of train, train-2, ... where the user chose none.

        One that is `foreign`, as its ProgramDocument says, is refused, once the server has no other reason to.
        """
        from voda.cli.http.client import call_server
        from voda.cli.manifests import ReadManifests, with_name_and_annotations
        from voda.cli.watch.submitted_jobs import check

        base = document.manifest["metadata"]["name"]
        for number in range(1, _MOST_NAMES):
            name = base if number == 1 else f"{base}-{number}"
            try:
                named = with_name_and_annotations(document, name=name, annotations={})
                if foreign:
                    call_server(self.where, partial(check, document=named))
                    raise InvalidInput(foreign)
                return self._send(ReadManifests([named]), is_program=True)
            except AlreadyExists:
                if self.job.name or self.how.key:
                    raise
            except InvalidField as error:
                if has_image or not error.field.endswith(".image"):
                    raise
                raise InvalidInput(
                    "this voda schedules a Kubernetes cluster, where a program runs in a container: name its image"
                    " with --image IMAGE"
                ) from error
        raise AlreadyExists(f"{base} to {base}-{_MOST_NAMES - 1} are names of jobs: choose another one with --name")

    def _send(self, read: "ReadManifests", *, is_program: bool = False) -> bool:
        from voda.cli.http.client import call_server
        from voda.cli.watch.submitted_jobs import BatchSubmit
        from voda.clock import SystemClock

        key, is_dry = self.how.key or SystemClock().new_id(), self.how.dry_run
        batch = BatchSubmit(read, key=key, is_dry_run=is_dry, output=self.output, is_program=is_program)
        if self.how.follow and len(read.documents) + len(read.refused) > 1:
            raise InvalidInput("--follow prints the output of one job: follow several with -w")
        if is_dry or not (self.how.watch or self.how.follow):
            return call_server(self.where, batch.run)
        return call_server(self.where, batch.print_output if self.how.follow else batch.follow)


def _refuse_odd_files(files: Sequence[str], name: str) -> None:
    if not files:
        raise InvalidInput("nothing to submit: give a manifest, or a program after --: voda submit -- python train.py")
    if name and len(files) > 1:
        raise InvalidInput(f"--name is for one job: got {len(files)} files")
    for file in files:
        if file.endswith(".py"):
            raise InvalidInput(f"{file} is a Python program, not a manifest: voda submit -- python {file}")
