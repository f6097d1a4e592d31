"""The command line: finds its commands by file, and turns every error raised on purpose into one line.

A command lives in a module of this package that does not begin with `_` and has `register(app)`. Such a module
imports at its top only what `--help` needs; whatever is slow to import is imported inside the command.
"""

import importlib
import pkgutil
import sys

import typer

from voda.domain.errors import TransientError, VodaError

EXIT_PERMANENT = 2
EXIT_TRANSIENT = 75
"""EX_TEMPFAIL of sysexits.h: the same command may succeed later."""
EXIT_INTERRUPTED = 130


def build_app() -> typer.Typer:
    """Return the application with the commands of every module of this package."""
    app = typer.Typer(
        name="voda",
        help="Decide which training job gets how many GPUs, and tell why.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # A callback keeps the sub-command's name in force even while there is only one.
    app.callback()(lambda: None)
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if not found.name.startswith("_"):
            importlib.import_module(f"{__name__}.{found.name}").register(app)
    return app


def main() -> None:
    """Run the command line and exit: 0 done, 2 permanent error, 75 try again later, 130 interrupted."""
    try:
        build_app()()
    except VodaError as error:
        print(f"voda: {error}", file=sys.stderr)
        sys.exit(EXIT_TRANSIENT if isinstance(error, TransientError) else EXIT_PERMANENT)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
