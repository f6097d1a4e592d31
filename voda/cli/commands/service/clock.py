"""`voda clock`: whether voda trusts this machine's clock, and an admin's word that it is right."""

from pathlib import Path
from typing import Annotated

from voda.cli.command_group import command
from voda.cli.parameters import Option


@command("clock")
def clock(
    home: Annotated[Path | None, Option("--home", help="Folder of log, jobs, tokens; default VODA_HOME.")] = None,
    accept: Annotated[
        bool, Option("--accept", help="The clock is right, whatever log and uptime account for.")
    ] = False,
) -> None:
    """Show whether voda trusts the clock of this machine, or say that it is right.

    Where the clock is more than a day ahead of, or behind, what log and uptime
    account for, no folder is deleted by retention until somebody who may write
    the folder of voda accepts it, or it is right again.

    \b
    Examples:
      voda clock
      sudo voda clock --home /var/lib/voda --accept
    """
    from voda import config
    from voda.app.clock_guard import accept as confirm
    from voda.app.clock_guard import ahead_s, confirmed, read_clock, shift
    from voda.domain.errors import InvalidInput
    from voda.timetravel.moment import rfc3339

    folder, now = home or config.home_folder(), read_clock()
    shown = rfc3339(now.wall_s, decimals=0)
    if accept:
        try:
            confirm(folder, now)
        except OSError as error:
            raise InvalidInput(
                f"{folder} cannot be written: {error.strerror}; name voda's folder with --home"
            ) from error
        print(f"{shown} is right")
        return
    before = confirmed(folder)
    if before is None:
        print(f"{shown}; no voda has noted the time in {folder}")
        return
    ahead, since = shift(ahead_s(before, now)), rfc3339(before.wall_s, decimals=0)
    print(f"{shown}; {ahead} the uptime since {since}")
