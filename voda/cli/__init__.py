"""The command line: finds its commands by file, and turns every error raised on purpose into one line.

Each module below voda.cli.commands marks its commands with `command_group.command`. It imports at its top only what
`--help` needs; whatever is slow to import is imported inside the command.

`command_group` and `parameters` make click's commands of them. Many commands share `options`, `execution`, `manifests`
and `log_files`; `log_copies` is a part of `voda log`. Below:
`commands/`, `http/` (the client of the server), `render/` (text for a terminal), `watch/` (what is shown live).
"""

import os
import sys
from typing import Any, Final

import click

from voda import __version__
from voda.cli import commands
from voda.cli.command_group import CommandsByFile
from voda.cli.options import is_kubectl_plugin
from voda.domain.errors import TransientError, VodaError

EXIT_PERMANENT = 2
EXIT_TRANSIENT = 75
"""EX_TEMPFAIL of sysexits.h: the same command may succeed later."""
EXIT_INTERRUPTED = 130


_OTHER_WORDS: Final = {
    **dict.fromkeys(("stop", "kill", "rm", "remove", "abort"), "delete"),
    **dict.fromkeys(("start", "create", "apply"), "submit"),
    **dict.fromkeys(("restart", "retry", "resubmit"), "rerun"),
    **dict.fromkeys(("pause", "suspend"), "halt"),
    **dict.fromkeys(("continue", "unpause"), "resume"),
    **dict.fromkeys(("list", "jobs"), "get"),
    **dict.fromkeys(("show", "info"), "describe"),
    **dict.fromkeys(("ssh", "attach", "shell"), "exec"),
    "watch": "top",
    "tail": "logs",
    "why": "explain",
}


class VodaCommands(CommandsByFile):
    other_words = _OTHER_WORDS

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an interruption is no abort, whose exit status is another."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def build_app() -> click.Group:
    """Return the application with the commands of every module."""
    app = VodaCommands(
        "voda",
        commands,
        help="Decide which training job gets how many GPUs, and tell why.",
        epilog="Other names: ps, ls = get; queue = get what waits; status = describe; cancel = delete; drain = nodes"
        " drain.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    return click.version_option(__version__, message="voda %(version)s", help="Show the version and exit.")(app)


def main() -> None:
    """Run the command line and exit: 0 done, 2 permanent error, 75 try again later, 130 interrupted."""
    if sys.stdout is None:
        # Closed by the shell (`>&-`): no other file may get its number.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        try:
            build_app()(prog_name=_name())
        finally:
            sys.stdout.flush()
    except VodaError as error:
        print(f"voda: {error}", file=sys.stderr)
        sys.exit(EXIT_TRANSIENT if isinstance(error, TransientError) else EXIT_PERMANENT)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        _give_up_output()
        if not isinstance(error, BrokenPipeError):
            where = f"{error.filename}: " if error.filename else "the output cannot be written: "
            print(f"voda: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(EXIT_PERMANENT)


def _name() -> str:
    """Return what the user calls this program."""
    return "kubectl voda" if is_kubectl_plugin() else "voda"


def _give_up_output() -> None:
    # The interpreter flushes once more as it exits, and would complain of the same error again.
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
