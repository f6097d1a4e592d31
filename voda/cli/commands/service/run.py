"""`voda run`: keep a program running on the hosts there are, whatever their number."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from voda.cli.command_group import HandWrapped, command
from voda.cli.execution import run_async
from voda.cli.parameters import Argument, Option
from voda.domain.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voda.domain.sizes import JobSizes
    from voda.launcher.hosts import Discovery
    from voda.launcher.run import Launcher, LaunchSpec

_IN_A_POD = "KUBERNETES_SERVICE_HOST"
_SLOTS = "OMPI_MCA_orte_set_default_slots"
_DEVICES = "VODA_DEVICES_FILE"
_SCRIPT = "--host-discovery-script"
_NOT_FOUND = 127
_MOST_PROCESSES = 100_000

_Starter = Literal["mpirun", "torchrun"]


class _RunCommand(HandWrapped):
    """A command that many call who want `voda submit`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        has_script = any(word.startswith(_SCRIPT) for word in args)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            if has_script:
                raise
            program = shlex.join(ctx.params.get("program") or ("python", "train.py"))
            raise click.UsageError(
                f"{_SCRIPT} is needed; to run a program as a job: voda submit -- {program}", ctx
            ) from error


@command("run", cls=_RunCommand)
def run(  # noqa: PLR0913 - one parameter per option
    program: Annotated[list[str], Argument(help="The program and its arguments, after --.")],
    script: Annotated[Path, Option(_SCRIPT, metavar="FILE", help="Prints the hosts there are, one per line.")],
    min_np: Annotated[
        int, Option("--min-np", metavar="N", min=1, help="Fewest processes; with fewer slots it waits.")
    ] = 1,
    max_np: Annotated[
        int, Option("--max-np", metavar="N", min=0, help="Most processes; 0 = all the slots there are.")
    ] = 0,
    sizes: Annotated[str, Option("--sizes", metavar="SIZES", help="Its numbers of processes: 4-32:4 or 1,2,4,8.")] = "",
    grace: Annotated[float, Option(metavar="S", min=0, max=86_400, help="Time for a checkpoint.", is_span=True)] = 30.0,
    max_failures: Annotated[int, Option(metavar="N", min=1, help="Give up after so many failures in a row.")] = 3,
    interval: Annotated[
        float, Option(metavar="S", min=0.05, max=3_600, help="Time between looks at the hosts.", is_span=True)
    ] = 0.5,
    settle: Annotated[
        float,
        Option(
            metavar="S", min=0, max=3_600, help="Grow only when the list has not changed for so long.", is_span=True
        ),
    ] = 0.0,
    slots_per_host: Annotated[
        int, Option(metavar="N", min=0, help=f"Of hosts listed without slots; 0 = what {_SLOTS} says, else 1.")
    ] = 0,
    launcher: Annotated[_Starter, Option(metavar="mpirun|torchrun", help="What starts the processes.")] = "mpirun",
) -> None:
    """Run a program under mpirun or torchrun, and restart it when its hosts change.

    The script prints a host or host:slots per line, and is asked again and again.
    When the answer changes, every process of the program gets SIGTERM and --grace
    seconds to write its checkpoint; then the program starts at the new size, on
    all the slots there are if --max-np does not say otherwise. The words after --
    are the program.

    Exit code: 0 when the program ended with 0; its own when it failed
    --max-failures times in a row; 143 when voda run was told to end.

    \b
    Examples:
      voda run --min-np 1 --max-np 8 \\
          --host-discovery-script /etc/mpi/discover_hosts.sh -- python train.py
      voda run --max-np 4 --host-discovery-script ./hosts.sh \\
          --launcher torchrun -- python train.py --epochs 30
    """
    from voda import config
    from voda.domain.sizes.text import parse_sizes
    from voda.launcher.run import Launcher
    from voda.launcher.state_machine import Rules

    if max_np and max_np < min_np:
        raise InvalidInput(f"--max-np is {max_np}, expected --min-np ({min_np}) or more")
    env = config.environment()
    discovery = _discovery(script, slots_per_host or _default_slots(env), env)
    steps = parse_sizes(sizes, "--sizes", most=_MOST_PROCESSES) if sizes else None
    min_np = _least(steps, min_np, max_np) if steps is not None else min_np
    rules = Rules(min_np=min_np, max_np=max_np, sizes=steps, grace_s=grace, max_failures=max_failures, settle_s=settle)
    job = _job(program, launcher, env)
    raise click.exceptions.Exit(
        _exit_code(Launcher(job, discovery=discovery, rules=rules, interval_s=interval, say=_say))
    )


def _least(sizes: "JobSizes", min_np: int, max_np: int) -> int:
    """Return the least size within the bounds; max_np = 0: any."""
    least = sizes.above(min_np - 1)
    if not 0 < least <= (max_np or least):
        bounds = f"{min_np} to {max_np}" if max_np else f"{min_np} or more"
        raise InvalidInput(f"--sizes is {sizes}: expected one of --min-np to --max-np, {bounds}")
    return least


def _exit_code(launcher: "Launcher") -> int:
    """Run a program, and return how it ended."""
    from voda.launcher.program import ProgramNotFound

    try:
        return run_async(launcher.run())
    except ProgramNotFound as error:
        # As a shell says it: voda does not try such a job again.
        _say(str(error))
        return _NOT_FOUND


def _discovery(script: Path, slots_per_host: int, env: "Mapping[str, str]") -> "Discovery":
    from voda.launcher.addresses import Resolver
    from voda.launcher.hosts import Discovery

    devices = env.get(_DEVICES, "")
    return Discovery(
        script,
        slots_per_host=slots_per_host,
        devices_file=Path(devices) if devices else None,
        resolver=Resolver() if _IN_A_POD in env else None,
    )


def _job(program: list[str], launcher: _Starter, env: "Mapping[str, str]") -> "LaunchSpec":
    import socket

    from voda.launcher.hosts import are_local
    from voda.launcher.run import LaunchSpec

    here = {socket.gethostname(), socket.gethostname().partition(".")[0]}
    return LaunchSpec(
        program=program,
        starter=launcher,
        env=env,
        is_local=lambda layout: are_local(layout.slots, here),
    )


def _default_slots(env: "Mapping[str, str]") -> int:
    slots = env.get(_SLOTS, "")
    return max(1, int(slots)) if slots.isascii() and slots.isdigit() else 1


def _say(text: str) -> None:
    print(f"voda run: {text}", file=sys.stderr, flush=True)
