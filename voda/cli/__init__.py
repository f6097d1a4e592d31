"""The command line: finds its commands by file, and turns every error raised on purpose into one line.

Each module below voda.cli.commands marks its commands with `options.command`. It imports at its top only what `--help`
needs; whatever is slow to import is imported inside the command.

Many commands share `options`, `execution`, `manifests` and `log_files`; `log_copies` is a part of `voda log`. Below:
`commands/`, `http/` (the client of the server), `render/` (text for a terminal), `watch/` (what is shown live).
"""

import os
import sys
from typing import Annotated

import typer

from voda import __version__
from voda.cli import commands
from voda.cli.options import add_commands
from voda.domain.errors import TransientError, VodaError
from voda.domain.plugins import modules_in

EXIT_PERMANENT = 2
EXIT_TRANSIENT = 75
"""EX_TEMPFAIL of sysexits.h: the same command may succeed later."""
EXIT_INTERRUPTED = 130


def build_app(*, completes: bool = True) -> typer.Typer:
    """Return the application with the commands of every module; `completes`: it offers to install shell completion."""
    app = typer.Typer(
        name="voda",
        help="Decide which training job gets how many GPUs, and tell why.",
        epilog="Other names: ps, ls = get; queue = get what waits; status = describe; cancel = delete.",
        no_args_is_help=True,
        add_completion=completes,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for module in sorted(modules_in(commands, nested=True), key=lambda module: module.__name__.rpartition(".")[2]):
        add_commands(app, module)
    return app


def main() -> None:
    """Run the command line and exit: 0 done, 2 permanent error, 75 try again later, 130 interrupted."""
    try:
        try:
            name = _name()
            # kubectl completes its plugins in a way of its own.
            build_app(completes=name == "voda")(prog_name=name)
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
    """Return what the user calls this program: kubectl runs its plugins as `kubectl-voda`."""
    called = os.path.basename(sys.argv[0])
    return "kubectl voda" if called.startswith("kubectl-") else "voda"


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"voda {__version__}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Hold what stands before a command."""


def _give_up_output() -> None:
    # The interpreter flushes once more as it exits, and would complain of the same error again.
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
