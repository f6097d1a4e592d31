"""What commands share: the options of those that ask the server."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from voda.cli.parameters import Option

Output = Literal["table", "wide", "json", "yaml", "name"]
OutputOption = Annotated[
    Output,
    Option("--output", "-o", help="For people (table, wide), for programs (json, yaml), or the names alone."),
]
SlotsOption = Annotated[int | None, Option("--slots", help="CPU slots to offer.", default_text="one per core")]
MachinePoolOption = Annotated[str, Option("--pool", help="Name of the pool of this machine.")]
_LONGEST_EXEC_S = 31_536_000
"""A year."""
ExecIdleOption = Annotated[
    float,
    Option(
        "--exec-idle",
        min=1,
        max=_LONGEST_EXEC_S,
        help="An exec ends after so long without input or output.",
        is_span=True,
    ),
]
ExecTimeOption = Annotated[
    float, Option("--exec-time", min=1, max=_LONGEST_EXEC_S, help="The longest that an exec may take.", is_span=True)
]
EXEC_IDLE_S, EXEC_TIME_S = 14_400.0, 86_400.0
JOB_HELP = "NAME (your live job, else your latest; only without one another user's), OWNER/NAME or @ID."
SelectorOption = Annotated[
    str, Option("--selector", "-l", metavar="LABELS", help="Only jobs with these labels: k=v,k2!=v.")
]
YesOption = Annotated[bool, Option("--yes", "-y", help="Do not ask before a job of another user is changed.")]
VerboseOption = Annotated[bool, Option("--verbose", "-v", help="Log what voda decides and does.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    PANEL: ClassVar = "Server"

    server: Annotated[
        str,
        Option(
            "--server", metavar="URL", help="Or unix:///PATH; by default VODA_SERVER, else the voda that runs here."
        ),
    ] = ""
    token: Annotated[
        str,
        Option("--token", metavar="TOKEN", help="By default VODA_TOKEN, else the admin token in the data folder."),
    ] = ""
    home: Annotated[
        Path | None,
        Option("--home", metavar="FOLDER", help="Data folder of a voda that runs here; default VODA_HOME."),
    ] = None
    ca: Annotated[Path | None, Option("--ca", metavar="FILE", help="Trust this certificate of an https server.")] = None
    context: Annotated[
        str, Option("--context", metavar="NAME", help="Ask the voda of this cluster of your kubeconfig, by kubectl.")
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOptions:
    replica: Annotated[
        str, Option("--replica", "-r", metavar="N|NAME", help="Such as 1 for worker-1; by default the first one.")
    ] = ""
    stdin: Annotated[bool, Option("--stdin", "-i", help="Pass the standard input on.")] = False
    tty: Annotated[bool, Option("--tty", "-t", help="Give the command a terminal; needs one here.")] = False


def is_kubectl_plugin() -> bool:
    """Return whether kubectl runs this program, as `kubectl voda`: it calls its plug-ins kubectl-NAME."""
    return os.path.basename(sys.argv[0]).startswith("kubectl-")


def provided(**options: Any) -> dict[str, Any]:
    """Return the options that the user gave."""
    return {name: value for name, value in options.items() if value is not None}
