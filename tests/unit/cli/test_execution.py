"""What jobs get of the environment of the command that starts a service."""

import sys
from pathlib import Path

from voda.app.machine import MachineOptions
from voda.cli.execution import with_voda_on_path

BIN = Path(sys.executable).parent


def test_path_of_jobs_is_that_of_the_shell_and_for_all_users_the_usual_one() -> None:
    shell = {"PATH": "/root/.pyenv/shims:/bin", "LANG": "C"}
    assert with_voda_on_path(shell) == {"PATH": f"/root/.pyenv/shims:/bin:{BIN}", "LANG": "C"}
    usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert with_voda_on_path(shell, is_multi_user=True) == {"PATH": f"{usual}:{BIN}", "LANG": "C"}


def test_time_limits_of_commands_are_options_of_the_service() -> None:
    options = MachineOptions(home=Path(), environment={}, command_idle_s=5.0, command_s=9.0)
    limits = options.caller_limits()
    assert (limits.command_idle_s, limits.command_s) == (5.0, 9.0)
