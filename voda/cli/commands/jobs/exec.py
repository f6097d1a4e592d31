"""`voda exec`: runs a command beside a replica of a job, with its input, output and exit status."""

import shlex
import sys
from typing import Annotated

import click

from voda.cli.command_group import command
from voda.cli.completion import live_jobs
from voda.cli.options import JOB_HELP, ExecOptions, ServerOptions, YesOption
from voda.cli.parameters import Argument
from voda.cli.program import ProgramCommand, words_after_dashes
from voda.domain.errors import InvalidInput, VodaError

EXIT_VODA = 125
"""As that of env, timeout and docker exec where they themselves failed."""
_OWN_SHELL = """\
case ${SHELL##*/} in nologin | false) SHELL=/bin/sh ;; esac
[ -x "${SHELL:-}" ] || SHELL=/bin/sh
exec "$SHELL"
"""
"""The account of a service may have a shell that ends at once."""


class ExecCommand(ProgramCommand):
    """A command line whose own command stands after `--`, and a hint where it does not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            job, words = self._read_leniently(ctx, given)
            # Of `-ix job ls` the x alone is unknown, and is taken for the job.
            if "--" in given or job is None or not words or any(word.startswith("-") for word in (job, words[0])):
                raise
            at = given.index(words[0], given.index(job) + 1)
            line = shlex.join([*given[:at], "--", *given[at:]])
            raise click.UsageError(f"the command to run stands after --: `{ctx.command_path} {line}`", ctx) from error

    def _read_leniently(self, ctx: click.Context, args: list[str]) -> tuple[str | None, list[str]]:
        """Return the job and the words that no option or argument takes."""
        trial = self.context_class(
            self, parent=ctx.parent, resilient_parsing=True, ignore_unknown_options=True, allow_extra_args=True
        )
        super().parse_args(trial, list(args))
        return trial.params.get("job"), trial.args


@command("exec", cls=ExecCommand)
def exec_(
    ctx: click.Context,
    where: ServerOptions,
    job: Annotated[str, Argument(help=JOB_HELP, autocompletion=live_jobs)],
    options: ExecOptions,
    yes: YesOption = False,
) -> None:
    """Run a command beside a replica of a running job.

    It begins in the folder where the program began, with the job's
    environment and rights. By default beside the launcher of an MPIJob, or
    the first worker of any other job. It ends with the replica, and with this
    program (^C, or a lost connection). Without a command, -it opens a shell:
    the user's own where the job has SHELL, else /bin/sh. On Kubernetes it
    says what to type instead.

    The exit status is that of the command; 125: voda could not run it, 126: it
    is no program, 127: it was not found, 130: ^C.

    \b
    Examples:
      voda exec resnet-7 -- nvidia-smi
      voda exec resnet-7 --replica 1 -- sh -c 'ls -l checkpoints'
      voda exec -it resnet-7
      voda exec resnet-7 -it -- bash
      voda exec resnet-7 -i -- tar x < data.tar
    """
    words = words_after_dashes(ctx) or _shell(job, options)
    from voda.cli.http.exec_terminal import run_command

    try:
        status = run_command(where, _meant(where, job, is_sure=yes), words, options)
    except VodaError as error:
        print(f"voda: {error}", file=sys.stderr)
        status = EXIT_VODA
    sys.exit(status)


def _shell(job: str, options: ExecOptions) -> tuple[str, ...]:
    """Return the command that becomes the user's shell; raises InvalidInput where it would have no terminal."""
    if not (options.stdin and options.tty):
        raise InvalidInput(
            f"which command? say it after --, as in `voda exec {job} -- nvidia-smi`; `voda exec -it {job}` opens a"
            " shell, which needs both -i and -t"
        )
    return ("/bin/sh", "-c", _OWN_SHELL)


def _meant(where: ServerOptions, named: str, *, is_sure: bool) -> str:
    """Return what names the job, once it is clear that it is meant."""
    from voda.projections.jobs.names import EXACT, OF_OWNER

    if is_sure or named.startswith(EXACT) or OF_OWNER in named:
        return named
    from voda.cli.http.client import call_server
    from voda.cli.http.confirmation import ChangeConfirmation
    from voda.cli.render.job_text import exactly

    verb = "run commands beside"
    return exactly(call_server(where, lambda client: ChangeConfirmation(client, verb, is_sure=False).job(named)))
