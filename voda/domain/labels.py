"""Labels of jobs, and selectors of jobs by their labels, in the syntax of Kubernetes.

Rule: what Kubernetes would refuse as a label is refused with its path, and a selector means what it means there: `k!=v`
and `k notin (v)` also choose jobs without `k`.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from voda.domain.errors import InvalidField

_MOST_CONDITIONS: Final = 50
_MOST_LABELS: Final = 100
_MOST_LABELS_BYTES: Final = 8_192
"""Of all keys and values of a job: each is in memory as long as the job is listed."""
_NAME: Final = r"[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
_KEY: Final = rf"(?:[a-z0-9](?:[-.a-z0-9]{{0,251}}[a-z0-9])?/)?{_NAME}"
_CONDITION: Final = re.compile(
    rf"(?:!\s*(?P<absent>{_KEY})|(?P<key>{_KEY})(?:\s*(?P<sign>==|=|!=)\s*(?P<value>(?:{_NAME})?)"
    rf"|\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)"
)
_COMMA: Final = re.compile(r",(?![^()]*\))")
"""Outside of parentheses."""
_MOST_LETTERS: Final = 2_000


class LabelCondition(Struct, frozen=True):
    """One condition on one label."""

    key: str
    operator: Literal["in", "notin", "exists", "absent"]
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
        return value is None


Selector = tuple[LabelCondition, ...]
"""All of them must match."""


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Return whether a selector chooses a job with these labels."""
    return all(condition.matches(labels) for condition in selector)


def parse_selector(text: str, *, field: str = "selector") -> Selector:
    """Return a selector such as `team=vision,tier!=test,stage in (dev, prod),!paused`; InvalidField otherwise."""
    if not text.strip():
        return ()
    parts = [part.strip() for part in _COMMA.split(text)] if len(text) <= _MOST_LETTERS else []
    matched = [_CONDITION.fullmatch(part) for part in parts[:_MOST_CONDITIONS]]
    found = [_condition(match) for match in matched if match is not None]
    if len(found) != len(parts) or not parts:
        wrong = next((part for part, match in zip(parts, matched, strict=False) if match is None), text)
        raise InvalidField(
            field,
            f"{field}: expected labels such as team=vision,tier!=test,stage in (dev,prod),!paused, got {wrong[:60]!r}",
        )
    return tuple(found)


def checked_labels(labels: Mapping[str, str], *, field: str = "metadata.labels") -> Mapping[str, str]:
    """Return the labels of a job, or refuse the first that is wrong with InvalidField."""
    if len(labels) > _MOST_LABELS:
        raise InvalidField(field, f"{field}: {len(labels)} of them, expected {_MOST_LABELS} or fewer")
    if (size := sum(len(key) + len(value) for key, value in labels.items())) > _MOST_LABELS_BYTES:
        raise InvalidField(
            field, f"{field}: {size:,} bytes of keys and values, expected {_MOST_LABELS_BYTES:,} or fewer: shorten them"
        )
    for key, value in labels.items():
        check_label(key, value, field=field)
    return labels


def check_label(key: str, value: str, *, field: str) -> None:
    """Raise InvalidField where nothing can have such a label; `field` is where it is asked for."""
    if not re.fullmatch(_KEY, key):
        raise InvalidField(
            f"{field}[{key[:80]}]",
            f"{field}: expected a key of up to 63 letters, digits, '-', '_' and '.', with an optional prefix such as"
            f" example.com/, got {key[:80]!r}",
        )
    if not re.fullmatch(rf"(?:{_NAME})?", value):
        raise InvalidField(
            f"{field}[{key}]",
            f"{field}[{key}]: expected up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter"
            f" or digit, got {value[:80]!r}",
        )


def _condition(match: re.Match[str]) -> LabelCondition:
    if match["absent"]:
        return LabelCondition(match["absent"], "absent")
    if match["sign"]:
        return LabelCondition(match["key"], "notin" if match["sign"] == "!=" else "in", frozenset({match["value"]}))
    if match["set"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return LabelCondition(match["key"], "notin" if match["set"] == "notin" else "in", values)
    return LabelCondition(match["key"], "exists")
