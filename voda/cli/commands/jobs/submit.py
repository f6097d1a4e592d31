"""`voda submit`: submits manifests, or a program without one, to the server."""

from typing import Annotated

import click

from voda.cli.command_group import command
from voda.cli.options import OutputOption, ServerOptions
from voda.cli.parameters import Argument
from voda.cli.program import ProgramCommand, ProgramOptions, words_after_dashes
from voda.cli.submission import JobOptions, SubmitOptions, SubmitRequest
from voda.domain.errors import InvalidInput

FilesArgument = Annotated[
    list[str] | None, Argument(metavar="FILE... | -- PROGRAM...", help="Manifests; - is standard input.")
]


@command("submit", cls=ProgramCommand)
def submit(  # noqa: PLR0913 - a command's options are its parameters
    ctx: click.Context,
    where: ServerOptions,
    program: ProgramOptions,
    job: JobOptions,
    how: SubmitOptions,
    files: FilesArgument = None,
    output: OutputOption = "table",
) -> None:
    """Submit a program, or manifests of Jobs, JobSets, MPIJobs and PyTorchJobs.

    What stands after -- is a program. mpirun, torchrun or neither starts it, as
    --launcher says, else as its imports suggest; on this machine it gets the PATH
    of your shell, and so the python of your venv. Manifests are YAML or JSON,
    several in a file too; voda warns of fields that the cluster does not honour.
    Several manifests are all checked first, then submitted. If the answer is
    lost, voda asks again and still submits the job only once.
    With -w, the exit status is 1 if a job fails or is canceled. On one machine
    the code runs that was submitted, whatever changes until it starts (--live).

    \b
    Examples:
      voda submit -- python train.py --lr 0.1
      voda submit -f -- python train.py
      voda submit --workers 1-4 --env SEED=7 --time 4h -- python train.py
      voda submit --memory 8Gi --cpus 4 --retries 0 -- python train.py
      voda submit --deepspeed ds.json -- deepspeed_train.py
      voda submit --workers 2 --image train:1 --print -- python train.py
      voda submit job.yaml --name resnet-8 --min 1 --max 8 --priority 5 -w
      voda submit *.yaml --dry-run -l team=vision
      voda submit --name sweep --array 0-99%10 -- python train.py
      voda submit --after sweep --after prep:any -- python report.py
      helm template jobs | voda submit - -n vision -o name
    """
    if not _submit(words_after_dashes(ctx), program, files or [], SubmitRequest(where, job, how, output)):
        raise click.exceptions.Exit(1)


def _submit(words: tuple[str, ...] | None, program: ProgramOptions, files: list[str], request: SubmitRequest) -> bool:
    if words is None:
        program.refuse_any(is_printed=request.how.prints)
        return request.submit_files(files, deepspeed=program.deepspeed)
    if files:
        raise InvalidInput(f"{files[0]} stands before --, and a program after it: submit one, then the other")
    return request.submit_program(words, program)
