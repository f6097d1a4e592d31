"""YAML as manifests use it: PyYAML's C loader, with budgets, unique string keys and plain values only.

Rule: nothing is built before its cost is known, and a value that aliases repeat is counted each time, so that a few
lines cannot fill the memory; no tag makes an object; dates stay text, as in JSON.
"""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from voda.domain.errors import InvalidInput
from voda.manifests.odd_values import MOST_DEPTH, refuse_odd_text

MOST_VALUES = 20_000
"""Values in a YAML text, those that aliases repeat counted each time."""
MOST_CHARACTERS = 1_048_576
"""Of all those values; Kubernetes takes no more bytes of an object."""
BIGGEST_INT = 2**63 - 1
SMALLEST_INT = -(2**63)

if TYPE_CHECKING:
    from yaml import SafeLoader as _SafeLoader
else:
    _SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
_TEXT, _MERGE, _MAP, _SEQ = (f"{_TAG}{name}" for name in ("str", "merge", "map", "seq"))
# The tag of an unquoted scalar is a type of Python's, which no text can name: a tag that a text has, such as !!int, is
# none of those below.
_TYPES: dict[str | None, Any] = {"null": type(None), "bool": bool, "int": int, "float": float, "merge": _MERGE}
_UNQUOTED = re.compile(
    r"(?P<null>|~|null|Null|NULL)"
    r"|(?P<bool>yes|Yes|YES|true|True|TRUE|on|On|ON|no|No|NO|false|False|FALSE|off|Off|OFF)"
    r"|(?P<int>[-+]?(?:0|[1-9][0-9_]*|0[0-7_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|0b[01_]+))"
    r"|(?P<float>[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
    r"|(?P<merge><<)"
)


class NotYaml(InvalidInput):
    """The text breaks YAML's grammar."""


def read(text: str) -> Any:
    """Return the one document of a YAML text.

    Raises:
        NotYaml: the text breaks YAML's grammar.
        InvalidInput: several documents, repeated keys, keys that are no strings, tags, too much or too deep.
    """
    loader = _Loader(text)
    documents = []
    try:
        while loader.check_node():
            node: Any = loader.get_node()
            loader.check_cost(node)
            if (value := loader.construct_document(node)) is not None:
                documents.append((node.start_mark.line + 1, value))
    except yaml.MarkedYAMLError as error:
        raise NotYaml(_grammar(error, text)) from None
    except yaml.reader.ReaderError as error:
        raise NotYaml(f"the manifest holds the character {error.character!r}, which YAML does not allow") from None
    except yaml.YAMLError as error:
        raise NotYaml(f"no valid YAML: {' '.join(str(error).split())[:200]}") from None
    finally:
        loader.dispose()
    if not documents:
        raise InvalidInput("the file is empty: expected YAML or JSON")
    if len(documents) > 1:
        listed = ", ".join(f"{_kind_of(value)} at line {line}" for line, value in documents[:5])
        raise InvalidInput(
            f"expected one YAML document, got {len(documents)} ({listed}): submit the job in a file of its own"
        )
    return documents[0][1]


def line_of(text: str, keys: Sequence[str | int]) -> int:
    """Return the line of a value in a text that was read, or of the last key on the way to it; from 1 on.

    Raises:
        NotYaml: the text is JSON that is no YAML.
    """
    loader = _Loader(text)
    try:
        try:
            node: Any = loader.get_single_node()
        except yaml.YAMLError as error:
            raise NotYaml(str(error)) from error
        line: int = node.start_mark.line
        for key in keys:
            is_list = isinstance(node, yaml.SequenceNode)
            pairs: list[tuple[Any, Any]] = [(each, each) for each in node.value] if is_list else node.value
            found = next(
                (pair for index, pair in enumerate(pairs) if key == (index if is_list else pair[0].value)), None
            )
            if found is None:
                break
            line, node = found[0].start_mark.line, found[1]
        return line + 1
    finally:
        loader.dispose()


class _Loader(_SafeLoader):
    """PyYAML's loader: its C code calls the first two methods around every node that it composes."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._composed = 0
        self._costs: dict[Any, tuple[int, int, int] | None] = {}
        """Node -> its cost, None while that is counted; an alias is the very node that it repeats."""

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        """Refuse a node that is too deep or too many, before the C code goes deeper."""
        self._depth += 1
        self._composed += 1
        if self._depth > MOST_DEPTH + 1:
            raise _too_deep(current_node)
        if self._composed > MOST_VALUES:
            raise _too_many(current_node)

    def ascend_resolver(self) -> None:
        self._depth -= 1

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """Return the tag of a node that has none."""
        if kind is not yaml.ScalarNode:
            return _MAP if kind is yaml.MappingNode else _SEQ
        match = _UNQUOTED.fullmatch(value) if implicit[0] else None
        return _TEXT if match is None else _TYPES[match.lastgroup]

    def check_cost(self, node: Any) -> tuple[int, int, int]:
        """Return a node's values and characters, aliases counted each time, and its levels; or refuse it."""
        if node in self._costs:
            if (cost := self._costs[node]) is None:
                raise _wrong(node, "an alias repeats a value within itself")
            return cost
        self._costs[node] = None
        is_scalar = isinstance(node, yaml.ScalarNode)
        children: Any = () if is_scalar else node.value
        if isinstance(node, yaml.MappingNode):
            _refuse_keys(node)
            children = [each for pair in node.value for each in pair]
        if children and node.tag not in (_MAP, _SEQ):
            self.refuse_tag(node)
        values, characters, levels = 1, len(node.value) if is_scalar else 0, int(not is_scalar)
        for child in children:
            more, longer, below = self.check_cost(child)
            values, characters, levels = values + more, characters + longer, max(levels, 1 + below)
            if values > MOST_VALUES:
                raise _too_many(child)
            if characters > MOST_CHARACTERS:
                raise _too_long(child)
        if levels > MOST_DEPTH:
            raise _too_deep(node)
        self._costs[node] = cost = values, characters, levels
        return cost

    def text(self, node: Any) -> str:
        value: str = self.construct_scalar(node)
        refuse_odd_text(value)
        return value

    def whole(self, node: Any) -> int:
        try:
            value: int = self.construct_yaml_int(node)
        except ValueError:
            # Python refuses to convert thousands of digits.
            value = BIGGEST_INT + 1
        if not SMALLEST_INT <= value <= BIGGEST_INT:
            raise _wrong(node, f"the number {node.value[:30]} is too big: expected 64 bits")
        return value

    def fraction(self, node: Any) -> float:
        value: float = self.construct_yaml_float(node)
        if not math.isfinite(value):
            raise _wrong(node, f"{node.value[:30]} is not a number that JSON knows, or is too big: quote it")
        return value

    def refuse_tag(self, node: Any) -> Any:
        """Refuse a tag that no other method knows."""
        raise _wrong(node, f"tag {node.tag.replace(_TAG, '!!')[:60]} is not supported: expected plain values")

    yaml_constructors: ClassVar[dict[Any, Any]] = {
        _TEXT: text,
        _MERGE: text,
        type(None): lambda loader, node: None,
        bool: lambda loader, node: node.value.lower() in ("yes", "true", "on"),
        int: whole,
        float: fraction,
        _MAP: _SafeLoader.construct_yaml_map,
        _SEQ: _SafeLoader.construct_yaml_seq,
        None: refuse_tag,
    }


def _refuse_keys(mapping: Any) -> None:
    """Refuse keys that are no strings, or occur twice."""
    seen = set()
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _wrong(key, "a key is a collection, expected a string")
        if not isinstance(key.tag, str):
            raise _wrong(key, f"key {key.value[:60]!r} is no string: quote it")
        if key.tag != _MERGE:
            if key.value in seen:
                raise _wrong(key, f"key {key.value[:80]!r} occurs twice in one mapping: keep one of them")
            seen.add(key.value)


def _kind_of(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind[:60] if isinstance(kind, str) else "something without a kind"


def _too_deep(node: Any) -> InvalidInput:
    return _wrong(node, f"the manifest is nested deeper than {MOST_DEPTH} levels")


def _too_many(node: Any) -> InvalidInput:
    return _wrong(node, f"the manifest holds more than {MOST_VALUES} values, repeated aliases counted")


def _too_long(node: Any) -> InvalidInput:
    return _wrong(node, f"the manifest holds more than {MOST_CHARACTERS} characters, repeated aliases counted")


def _wrong(node: Any, sentence: str) -> InvalidInput:
    mark = node.start_mark
    return InvalidInput(f"line {mark.line + 1}, column {mark.column + 1}: {sentence}")


def _grammar(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    what = ", ".join(part for part in (error.context, error.problem) if part)
    # The reader may count the end of the text as another line.
    lines = text.split("\n")[mark.line : mark.line + 1] if mark is not None else []
    if mark is not None and any(line[mark.column :].startswith("\t") for line in lines):
        what = "a tab: indent with spaces"
    return f"{where}no valid YAML ({what[:200]})"
