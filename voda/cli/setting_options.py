"""The options of commands that change settings of a pool, made of the settings' record.

Rule: a span is given with its unit where it says what is deleted.
"""

from dataclasses import make_dataclass
from typing import Annotated, Any, Final

import msgspec

from voda.cli.completion import complete_policies
from voda.cli.parameters import Option
from voda.domain.settings import ON_ONE_MACHINE, Settings, SettingValue
from voda.text import short, size

_KINDS: Final[dict[str, type]] = {"string": str, "number": float, "integer": int, "boolean": bool}
_OWN: Final[dict[str, dict[str, Any]]] = {
    "policy": {"autocompletion": complete_policies},
    "retention_s": {"needs_unit": True},
}
"""What the record does not say."""


def setting_options(*names: str, panel: str | None = None, of_up: bool = False) -> Any:
    """Return a group of options for the settings of these names, `of_up`: of `voda up` itself; None = as it is."""
    schema = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    fields = [
        (one, Annotated[_KINDS[schema[one]["type"]] | None, _option(one, schema[one], of_up=of_up)], None)
        for one in names
    ]
    return make_dataclass("PoolSettings", fields, frozen=True, slots=True, kw_only=True, namespace={"PANEL": panel})


def setting_text(name: str, value: SettingValue) -> str:
    """Return a value as people read it: 1m, 20 GB, steady."""
    if isinstance(value, bool):
        return "heed" if value else "ignore"
    if name.endswith("_bytes") and isinstance(value, int):
        return size(value)
    return short(value) if name.endswith("_s") and isinstance(value, float) else str(value)


def _option(name: str, schema: dict[str, Any], *, of_up: bool) -> Option:
    usual = setting_text(name, schema["default"])
    default = f"{usual} in a new pool"
    if name in ON_ONE_MACHINE:
        here = setting_text(name, ON_ONE_MACHINE[name])
        default = f"{here} in a new pool" if of_up else f"in a new pool {here} under voda up, {usual} on Kubernetes"
    is_span, is_size = name.endswith("_s"), name.endswith("_bytes")
    shown: dict[str, Any] = {"min": schema.get("minimum"), "max": schema.get("maximum"), **_OWN.get(name, {})}
    if is_span or is_size:
        shown["metavar"] = "SPAN" if is_span else "SIZE"
    return Option(
        _flag(name),
        help=schema["description"],
        default_text=default,
        is_span=is_span,
        is_size=is_size,
        **shown,
    )


def _flag(name: str) -> str:
    """Return --node-grace for node_grace_s, --output-size for output_bytes, and --heed-... for heeds_... ."""
    words = name.removesuffix("_s").replace("_bytes", "_size").replace("_", "-")
    if not words.startswith("heeds-"):
        return f"--{words}"
    return f"--{words.replace('heeds', 'heed', 1)}/--{words.replace('heeds', 'ignore', 1)}"
