"""Turns the signature of a command into click's parameters: `Annotated[int, Option("--min", min=1, help="Fewest.")]`.

Rules: a parameter without a default is required. One that is a dataclass, or a function that makes one, stands for a
group of options, one per field, in the panel of `--help` that the group names. What is wrong with a value is said as
what is expected.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypedDict, Unpack, get_args, get_origin

import click
from rich_click.rich_parameter import RichArgument, RichOption

from voda.domain.errors import InvalidInput
from voda.text import seconds_of, short, size

_SIZE: Final = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,6})?) ?([kmgtp]?)(i?)b?", re.IGNORECASE)
_PREFIXES: Final = ("", "k", "m", "g", "t", "p")
Complete = Callable[[click.Context, str], list[str]]
"""Returns what the text in the making may become."""


class OptionSettings(TypedDict, total=False):
    """How a parameter is shown, and what it takes; the bounds are inclusive."""

    help: str
    metavar: str
    min: float
    max: float
    autocompletion: Complete
    default_text: str
    """What holds where nothing is given, but that the help would not show by itself."""
    is_span: bool
    """Whether users write the seconds as a span: 30, 10m, 4h, 1d12h."""
    needs_unit: bool
    """Whether the span is refused without its unit: where it says what is deleted."""
    is_size: bool
    """Whether users write the bytes as a size: 500MB, 5GB, 4GiB."""
    is_once: bool
    """Whether it is refused when given twice, rather than taken as given last; it has no default but None."""


@dataclass(frozen=True, slots=True, init=False)
class Argument:
    settings: Mapping[str, Any]
    names: tuple[str, ...] = field(default=())

    def __init__(self, *names: str, **settings: Unpack[OptionSettings]) -> None:
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "settings", settings)


class Option(Argument):
    """Its names are written as click has them; without any it is called as its parameter."""


class _Number(click.ParamType[float]):
    def __init__(self, kind: type[int] | type[float], least: float | None, most: float | None) -> None:
        self.name = "integer" if kind is int else "number"
        self._kind, self._least, self._most = kind, least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; raises BadParameter."""
        try:
            number = self._kind(value)
        except (ValueError, OverflowError):
            self.fail(f"expected a {'whole ' if self._kind is int else ''}number, got {_got(value)}", param, ctx)
        return self._within_bounds(number, value, param, ctx)

    def _within_bounds(
        self, number: float, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number that was given as `value`; raises BadParameter."""
        if not math.isfinite(number):
            self.fail(f"expected a number, got {_got(value)}", param, ctx)
        if self._least is not None and not number >= self._least:
            self.fail(f"expected {self._text(self._least)} or more, got {_got(value)}", param, ctx)
        if self._most is not None and not number <= self._most:
            self.fail(f"expected {self._text(self._most)} or less, got {_got(value)}", param, ctx)
        return number

    def _text(self, number: float) -> str:
        return f"{number:g}"


class _Span(_Number):
    """Seconds, which may be written with units."""

    def __init__(self, least: float | None, most: float | None, *, needs_unit: bool) -> None:
        super().__init__(float, least, most)
        self.name = "span"
        self._needs_unit = needs_unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; raises BadParameter."""
        try:
            return self._within_bounds(seconds_of(str(value), needs_unit=self._needs_unit), value, param, ctx)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)

    def _text(self, number: float) -> str:
        return _span_text(number)


class _Size(_Number):
    """Bytes, which may be written with units."""

    def __init__(self, least: float | None, most: float | None) -> None:
        super().__init__(int, least, most)
        self.name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the bytes; raises BadParameter."""
        if (match := _SIZE.fullmatch(str(value).strip())) is None:
            self.fail(f"expected a size such as 500MB, 5GB or 4GiB, got {_got(value)}", param, ctx)
        number, prefix, binary = match.groups()
        unit: int = (1024 if binary else 1000) ** _PREFIXES.index(prefix.lower())
        return self._within_bounds(round(float(number) * unit), value, param, ctx)

    def _text(self, number: float) -> str:
        return size(number)


class _OneOf(click.Choice[str]):
    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f"expected one of {', '.join(self.choices)}, got {_got(value)}"


def _got(value: Any) -> str:
    return f"{str(value)[:80]!r}"


def click_parameters(function: Callable[..., None]) -> list[click.Parameter]:
    """Return the parameters of a command, those of its groups of options among them."""
    return [_click_parameter(one, panel) for one, panel in _expanded(function) if one.annotation is not click.Context]


def called(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command as click calls it: with one keyword per option, those of groups too."""

    def run(**values: Any) -> None:
        values |= {one.name: [*values[one.name]] or one.default for one, _ in _expanded(function) if _is_list(one)}
        for one in inspect.signature(function).parameters.values():
            if one.annotation is click.Context:
                values[one.name] = click.get_current_context()
            elif (group := _group(one)) is not None:
                values[one.name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        function(**values)

    return run


def _expanded(function: Callable[..., None]) -> Iterator[tuple[inspect.Parameter, str | None]]:
    """Yield the parameters with the panels of their groups."""
    for one in inspect.signature(function).parameters.values():
        if (group := _group(one)) is None:
            yield one, None
            continue
        for option in inspect.signature(group).parameters.values():
            yield option, getattr(group, "PANEL", None)


def _group(parameter: inspect.Parameter) -> Any:
    """Return the dataclass that a parameter stands for; None: it is an option or argument itself."""
    kind = parameter.annotation
    made = kind() if inspect.isfunction(kind) else kind
    return made if is_dataclass(made) else None


def _click_parameter(parameter: inspect.Parameter, panel: str | None) -> click.Parameter:
    kind, declared = get_args(parameter.annotation)[:2]
    required = parameter.default is inspect.Parameter.empty
    default = None if required else parameter.default
    plain, is_list = _plain(kind), _is_list(parameter)
    settings = dict(declared.settings)
    least, most, complete = (settings.pop(name, None) for name in ("min", "max", "autocompletion"))
    is_span, needs_unit = settings.pop("is_span", False), settings.pop("needs_unit", False)
    is_once, is_size = settings.pop("is_once", False), settings.pop("is_size", False)
    default_text = settings.pop("default_text", not (default is None or default is False or default == ""))
    if is_span:
        default_text = default_text if default is None else _span_text(default)
    elif not is_size and (least is not None or most is not None):
        settings["metavar"] = f"{settings.get('metavar', 'N')} [{_range(least, most)}]"
    shown: dict[str, Any] = {
        "type": _Span(least, most, needs_unit=needs_unit)
        if is_span
        else _Size(least, most)
        if is_size
        else _type(plain, least, most),
        "shell_complete": complete and (lambda ctx, _, incomplete: complete(ctx, incomplete)),
        "required": required,
        "panel": panel,
        **settings,
    }
    if not required:
        # Click takes a default of None for a value: what is required has no default at all.
        shown["default"] = default
    if not isinstance(declared, Option):
        if "metavar" in shown and not required:
            shown["metavar"] = f"[{shown['metavar']}]"
        return RichArgument([parameter.name], nargs=-1 if is_list else 1, **shown)
    names = declared.names or (f"--{parameter.name.replace('_', '-')}",)
    return RichOption(
        [parameter.name, *names],
        is_flag=plain is bool,
        multiple=is_list or is_once,
        callback=_only_one if is_once else None,
        show_default=default_text,
        **shown,
    )


def _only_one(ctx: click.Context, param: click.Parameter, values: tuple[Any, ...]) -> Any:
    """Return the one value that was given, None where none was; raises BadParameter."""
    if len(values) > 1:
        raise click.BadParameter(f"expected it once, got {' and '.join(map(_got, values))}", ctx, param)
    return values[0] if values else None


def _span_text(span_s: float) -> str:
    return short(span_s) if span_s % 1 == 0 else f"{span_s:g}s"


def _is_list(parameter: inspect.Parameter) -> bool:
    kind, *_ = get_args(parameter.annotation) or (parameter.annotation,)
    return any(get_origin(one) is list for one in (kind, *get_args(kind)))


def _plain(kind: Any) -> Any:
    """Return the type of one value: int of `int | None`, Path of `list[Path] | None`."""
    if isinstance(kind, UnionType) or (get_origin(kind) is not Literal and NoneType in get_args(kind)):
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    return get_args(kind)[0] if get_origin(kind) is list else kind


def _range(least: float | None, most: float | None) -> str:
    return f"{'' if least is None else f'{least:g}<='}x{'' if most is None else f'<={most:g}'}"


def _type(kind: Any, least: float | None, most: float | None) -> click.ParamType[Any] | None:
    if kind in (int, float):
        return _Number(kind, least, most)
    if get_origin(kind) is Literal:
        return _OneOf(get_args(kind), case_sensitive=False)
    # A user may pass through a folder that only root reads: what cannot be read is said when it is opened.
    return click.Path(readable=False, path_type=Path) if kind is Path else click.BOOL if kind is bool else click.STRING
