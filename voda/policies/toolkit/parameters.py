"""Parameters of policies. A Struct beside a policy (`parameters`) says their names, defaults, bounds and meaning.

Settings, API, command line and documentation follow from that Struct. Rule: the log holds only what somebody set, so a
released parameter keeps its name, its default and its bounds, or an upcaster lifts what older logs say.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from voda.domain.errors import InvalidField, InvalidInput
from voda.domain.settings import Parameters, ParameterValue, Settings
from voda.domain.state import ClusterState
from voda.policies import POLICIES

P = TypeVar("P", bound=Struct)
FIELD: Final = "parameters"
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "names and values",
}


def parameters(view: ClusterState, policy: str, kind: type[P]) -> P:
    """Return the policy's parameters as the pool has them."""
    return msgspec.convert(view.settings.parameters.get(policy, {}), kind)


def parameters_in_force(settings: Settings) -> Parameters:
    """Return every parameter of every policy: as set for the pool, or else its default."""
    return {
        policy: msgspec.to_builtins(msgspec.convert(settings.parameters.get(policy, {}), kind))
        for policy, kind in _kinds().items()
    }


def parameter_schemas() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return policy -> parameter -> its JSON schema: type, bounds, default and description."""
    found = {policy: msgspec.json.schema(kind)["$defs"][kind.__name__] for policy, kind in _kinds().items()}
    return {policy: schema["properties"] for policy, schema in found.items()}


def check_parameters(changes: Parameters) -> Parameters:
    """Return the changes in the types of the policies' parameters, or raise InvalidField."""
    kinds = {policy: _kind(policy) for policy in changes}
    return {
        policy: {name: _check(policy, kinds[policy], name, value) for name, value in values.items()}
        for policy, values in changes.items()
    }


def changed_parameters(wanted: Parameters, settings: Settings) -> Parameters:
    """Return those of the parameters, checked before, that are not in force."""
    in_force = parameters_in_force(settings)
    new = {
        policy: {name: value for name, value in values.items() if value != in_force[policy][name]}
        for policy, values in wanted.items()
    }
    return {policy: values for policy, values in new.items() if values}


def parse_assignments(policy: str, assignments: Sequence[str]) -> Mapping[str, ParameterValue]:
    """Return the values of assignments such as `demote_gpu_s=7200`, unchecked; else raise InvalidInput."""
    values: dict[str, ParameterValue] = {}
    for text in assignments:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise InvalidInput(f"parameter {text[:80]!r} of {policy}: expected NAME=VALUE")
        try:
            values[name] = msgspec.json.decode(value, type=bool | int | float)
        except msgspec.MsgspecError:
            values[name] = value
    return values


def _kinds() -> Mapping[str, type[Struct]]:
    return {name: kind for name, policy in POLICIES.items() if (kind := getattr(policy, FIELD, None)) is not None}


def _kind(policy: str) -> type[Struct] | None:
    try:
        return getattr(POLICIES.choose(policy), FIELD, None)
    except InvalidInput as error:
        raise InvalidField(f"{FIELD}.{policy}", str(error)) from error


def _check(policy: str, kind: type[Struct] | None, name: str, value: ParameterValue) -> ParameterValue:
    path = f"{FIELD}.{policy}.{name}"
    known = kind.__struct_fields__ if kind is not None else ()
    if kind is None or name not in known:
        others = f"it has {', '.join(known)}" if known else "it has none"
        raise InvalidField(path, f"{policy} has no parameter {name[:80]!r}: {others}")
    checked: ParameterValue = check_value(kind, name, value, path)
    return checked


def check_value(record: type[Struct], name: str, value: object, path: str) -> Any:
    """Return a value in the type of a record's field and within its bounds, or raise InvalidField with the path."""
    try:
        converted = getattr(msgspec.convert({name: value}, record), name)
    except msgspec.ValidationError as error:
        expected = str(error).removeprefix("Expected ").partition(", got ")[0].partition(" - at ")[0]
        for word, plain in _WORDS.items():
            expected = expected.replace(f"`{word}`", plain)
        raise InvalidField(path, f"{path}: expected {expected}, got {value!r:.80}") from error
    # -0.0 is 0.0, and would only look different.
    return converted + 0.0 if type(converted) is float else converted
