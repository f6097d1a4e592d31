"""Marks functions as commands, and finds the commands of a package by the files they lie in.

Rules: a command's docstring is its help. The module that a command is named after is looked at first, so that one
command does not wait for the imports of all others.
"""

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeVar

import click
from rich_click.rich_command import RichCommand, RichGroup
from rich_click.rich_context import RichContext
from rich_click.rich_help_formatter import RichHelpFormatter

from voda.cli.former import FORMER
from voda.cli.parameters import called, click_parameters
from voda.domain.errors import closest

_CALLS: Final = re.compile(r"^((?: +|.*\$\())voda ", re.MULTILINE)
"""The program's name in an example, at its beginning or in `$(...)`."""
_ALIKE: Final = 0.8
"""Of options: gpu-memory is another thing than memory."""
Function = TypeVar("Function", bound=Callable[..., None])


class HandWrapped(RichCommand):
    """A command whose help text is shown as its docstring has it, and whose own options come before the shared ones."""

    function: Callable[..., None]

    @cached_property
    def params(self) -> list[click.Parameter]:  # type: ignore[override]
        """Those of the function's signature."""
        return click_parameters(self.function)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; what an unknown option may mean is one that is close, or that begins with its name."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not (name := error.option_name).startswith("--"):
                raise
            _refuse_former(ctx, name)
            known = [one[2:] for param in self.get_params(ctx) for one in param.opts if one.startswith("--")]
            meant = [one for one in known if one.startswith(name[2:])] or filter(
                None, [closest(name[2:], known, alike=_ALIKE)]
            )
            message = f"No such option {name!r}.{_suggestion(f'--{one}' for one in meant)}"
            raise click.NoSuchOption(name, message, ctx=error.ctx) from None

    def format_help_text(self, ctx: RichContext, formatter: RichHelpFormatter) -> None:  # type: ignore[override]
        """Write the docstring; marks of click's own wrapping are left out."""
        from rich.padding import Padding
        from rich.text import Text

        help_text = (self.help or "").replace("\b\n", "")
        # Examples name the program as it was called, such as `kubectl voda`.
        help_text = _CALLS.sub(rf"\1{ctx.find_root().info_name} ", help_text)
        formatter.write(Padding(Text(help_text), (0, 1, 1, 1)))

    def format_options(self, ctx: RichContext, formatter: RichHelpFormatter) -> None:  # type: ignore[override]
        """Write the panels in their order."""
        from rich_click.rich_panel import RichOptionPanel

        self.panels = [RichOptionPanel("Arguments"), RichOptionPanel("Options")]
        super().format_options(ctx, formatter)


class CommandGroup(RichGroup):
    """A group of commands, such as `voda log`; without a command it shows its help."""

    other_words: Mapping[str, str] = {}
    """What users of other programs call a command -> the command."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name=name, no_args_is_help=True, **settings)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant; the suggestion for another word is one that is close, or means the same."""
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        _refuse_former(ctx, name)
        meant = self.other_words.get(name) or closest(name, self.list_commands(ctx))
        raise click.UsageError(f"No such command {name!r}.{_suggestion(filter(None, [meant]))}", ctx)


def _refuse_former(ctx: click.Context, word: str) -> None:
    """Raise UsageError, the sentence that says what to do instead, where voda had this command or option once."""
    path = [*ctx.command_path.split()[1:], word]
    if (instead := FORMER.get(" ".join(path))) is not None:
        raise click.UsageError(f"There is no {' '.join(path)!r} any more: {instead}.", ctx)


def _suggestion(meant: Iterable[str]) -> str:
    names = " or ".join(map(repr, meant))
    return f" Did you mean {names}?" if names else ""


class CommandsByFile(CommandGroup):
    """The commands in the modules of a package and of its folders, which are imported when they are needed."""

    def __init__(self, name: str, package: ModuleType, **settings: Any) -> None:
        super().__init__(name, **settings)
        files = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        self._modules = [file.name for file in files if not file.ispkg]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name; None = there is none."""
        if cmd_name not in self.commands:
            self._load(module for module in self._modules if module.endswith(f".{cmd_name}"))
        if cmd_name not in self.commands:
            self._load(self._modules)
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in their order."""
        self._load(self._modules)
        return super().list_commands(ctx)

    def _load(self, modules: Iterable[str]) -> None:
        for module in modules:
            add_commands(self, import_module(module))


def command(
    name: str, *, cls: type[HandWrapped] = HandWrapped, aliases: tuple[str, ...] = (), hidden: bool = False
) -> Callable[[Function], Function]:
    """Mark a function as the command of this name; `cls` reads its command line, and aliases are hidden in the help."""

    def mark(function: Function) -> Function:
        vars(function)["command_class"] = cls
        vars(function)["command_names"] = {name: hidden, **dict.fromkeys(aliases, True)}
        return function

    return mark


def add_commands(group: click.Group, module: ModuleType) -> None:
    """Add the commands that a module defines; where it has a group, this is added with them."""
    own = next((one for one in vars(module).values() if isinstance(one, click.Group)), None)
    if own is not None:
        group.add_command(own)
    for one in vars(module).values():
        if hasattr(one, "command_names") and one.__module__ == module.__name__:
            for name, hidden in one.command_names.items():
                (own or group).add_command(built(one, name, hidden=hidden))


def built(function: Any, name: str, *, hidden: bool = False) -> click.Command:
    """Return what click runs for a marked function."""
    made: HandWrapped = function.command_class(
        name, callback=called(function), help=inspect.getdoc(function), hidden=hidden
    )
    made.function = function
    # Whoever lists the commands needs none of their options.
    del made.params
    return made
