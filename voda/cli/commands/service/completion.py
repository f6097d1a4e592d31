"""`voda completion`: lets a shell complete commands, options and names."""

from typing import Annotated, Literal

import click

from voda.cli.command_group import command
from voda.cli.parameters import Argument


@command("completion")
def completion(
    ctx: click.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], Argument(metavar="bash|zsh|fish", help="Which shell.")],
) -> None:
    """Print what a shell needs to complete commands, options and names of jobs.

    \b
    Examples, each a line for the file that the shell reads when it starts:
      bash  eval "$(voda completion bash)"      in ~/.bashrc
      zsh   eval "$(voda completion zsh)"       in ~/.zshrc, after compinit
      fish  voda completion fish | source       in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    print(made(ctx.find_root().command, {}, "voda", "_VODA_COMPLETE").source())
