"""YAML as manifests use it: the parser's events, built into plain values one by one.

Rule: nothing is built that was not counted first, so that a few lines of aliases cannot fill the memory; no tag
makes an object; dates stay text, as in JSON.
"""

import math
import re
from typing import Any

import yaml
from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.manifests.read.size_limits import BIGGEST_INT, MOST_DEPTH, MOST_VALUES, SMALLEST_INT, refuse_odd_text

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN = "tag:yaml.org,2002:"
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE = frozenset({"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0[0-7_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|0b[01_]+)")
_FRACTION = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MERGE = object()


class NotYaml(InvalidInput):
    """The text breaks YAML's grammar."""


class _Open(Struct):
    """A collection whose end has not come yet."""

    value: dict[str, Any] | list[Any]
    line: int
    anchor: str | None
    counted: int
    """Values counted before it began."""
    height: int = 1
    key: Any = None
    has_key: bool = False
    merged: list[dict[str, Any]] | None = None


class _Anchored(Struct, frozen=True):
    """What an anchor stands for, and what it costs to repeat it."""

    value: Any
    values: int
    height: int


def read(text: str) -> Any:
    """Return the one document of a YAML text.

    Raises:
        NotYaml: the text breaks YAML's grammar.
        InvalidInput: several documents, repeated keys, keys that are no strings, tags, too much or too deep.
    """
    builder = _Builder()
    loader = _Loader(text)
    try:
        while loader.check_event():
            builder.take(loader.get_event())
    except yaml.MarkedYAMLError as error:
        raise NotYaml(_grammar(error)) from None
    except yaml.reader.ReaderError as error:
        raise NotYaml(f"the manifest holds the character {error.character!r}, which YAML does not allow") from None
    except yaml.YAMLError as error:
        raise NotYaml(f"no valid YAML: {' '.join(str(error).split())[:200]}") from None
    finally:
        loader.dispose()
    return builder.document()


class _Builder:
    """Builds values from events."""

    def __init__(self) -> None:
        self._documents: list[tuple[int, Any]] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._counted = 0

    def take(self, event: Any) -> None:
        """Take the parser's next event."""
        if isinstance(event, yaml.ScalarEvent):
            self._count(event)
            value = _scalar(event, is_key=self._awaits_key())
            self._anchor(event.anchor, value, 1, 0)
            self._put(value, event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._end(event)
        elif isinstance(event, yaml.AliasEvent):
            self._repeat(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._anchors.clear()

    def document(self) -> Any:
        """Return the only document that is not empty."""
        documents = [(line, value) for line, value in self._documents if value is not None]
        if not documents:
            raise InvalidInput("the manifest is empty: expected YAML or JSON")
        if len(documents) > 1:
            listed = ", ".join(f"{_kind_of(value)} at line {line}" for line, value in documents[:5])
            raise InvalidInput(
                f"expected one YAML document, got {len(documents)} ({listed}): submit the job in a file of its own"
            )
        return documents[0][1]

    def _begin(self, event: Any) -> None:
        self._count(event)
        if self._awaits_key():
            raise _wrong(event, "a key is a collection, expected a string")
        if len(self._open) >= MOST_DEPTH:
            raise _wrong(event, f"the manifest is nested deeper than {MOST_DEPTH} levels")
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        _refuse_tag(event, "map" if isinstance(value, dict) else "seq")
        self._open.append(_Open(value, event.start_mark.line + 1, event.anchor, self._counted - 1))

    def _end(self, event: Any) -> None:
        done = self._open.pop()
        for other in done.merged or ():
            for key, item in other.items():
                done.value.setdefault(key, item)  # type: ignore[union-attr]  # only mappings merge
        self._anchor(done.anchor, done.value, self._counted - done.counted, done.height)
        self._put(done.value, event, done.height, done.line)

    def _repeat(self, event: Any) -> None:
        known = self._anchors.get(event.anchor)
        if known is None:
            raise _wrong(event, f"alias *{event.anchor[:60]} has no anchor before it")
        self._count(event, known.values)
        if len(self._open) + known.height > MOST_DEPTH:
            raise _wrong(event, f"the manifest is nested deeper than {MOST_DEPTH} levels")
        if self._awaits_key() and not isinstance(known.value, str):
            raise _wrong(event, "a key is no string: quote it")
        self._put(known.value, event, known.height)

    def _put(self, value: Any, event: Any, height: int = 0, line: int = 0) -> None:
        """Put a finished value into the collection that waits for it."""
        if not self._open:
            self._documents.append((line or event.start_mark.line + 1, value))
            return
        into = self._open[-1]
        into.height = max(into.height, height + 1)
        if isinstance(into.value, list):
            into.value.append(value)
        elif not into.has_key:
            if value is not _MERGE and value in into.value:
                raise _wrong(event, f"key {value[:80]!r} occurs twice in one mapping: keep one of them")
            into.key, into.has_key = value, True
        else:
            self._put_pair(into, value, event)

    def _put_pair(self, into: _Open, value: Any, event: Any) -> None:
        into.has_key = False
        if into.key is _MERGE:
            into.merged = [*(into.merged or ()), *_mergeable(value, event)]
        elif isinstance(into.value, dict):
            into.value[into.key] = value

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and not self._open[-1].has_key

    def _anchor(self, name: str | None, value: Any, values: int, height: int) -> None:
        if name is not None:
            self._anchors[name] = _Anchored(value, values, height)

    def _count(self, event: Any, values: int = 1) -> None:
        self._counted += values
        if self._counted > MOST_VALUES:
            raise _wrong(event, f"the manifest holds more than {MOST_VALUES} values, repeated aliases counted")


def _scalar(event: Any, *, is_key: bool) -> Any:
    """Return the plain value of a scalar; what is quoted is text."""
    text: str = event.value
    is_plain = event.implicit[0] and event.tag is None
    if not is_plain:
        _refuse_tag(event, "str")
    elif is_key and text == "<<":
        return _MERGE
    value = _resolved(text, event) if is_plain else text
    if isinstance(value, str):
        refuse_odd_text(value)
    elif is_key:
        raise _wrong(event, f"key {text[:60]!r} is no string: quote it")
    return value


def _resolved(text: str, event: Any) -> Any:
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _WHOLE.fullmatch(text):
        return _whole(text, event)
    if _FRACTION.fullmatch(text):
        value = float(text.replace("_", ""))
        if math.isfinite(value):
            return value
        raise _wrong(event, f"the number {text[:30]} is too big")
    if _NO_NUMBER.fullmatch(text):
        raise _wrong(event, f"{text} is not a number that JSON knows: leave it out or quote it")
    return text


def _whole(text: str, event: Any) -> int:
    digits = text.replace("_", "").lower()
    bare = digits.lstrip("+-")
    base = 16 if bare[:2] == "0x" else 2 if bare[:2] == "0b" else 8 if bare[:1] == "0" and len(bare) > 1 else 10
    # Python refuses to convert thousands of digits; none of them fits in 64 bits anyway.
    value = int(digits, base) if len(bare) <= 70 else BIGGEST_INT + 1
    if not SMALLEST_INT <= value <= BIGGEST_INT:
        raise _wrong(event, f"the number {text[:30]} is too big: expected 64 bits")
    return value


def _refuse_tag(event: Any, allowed: str) -> None:
    if event.tag not in (None, "!", _PLAIN + allowed):
        tag = event.tag.replace(_PLAIN, "!!")[:60]
        raise _wrong(event, f"tag {tag} is not supported: expected plain values")


def _mergeable(value: Any, event: Any) -> list[dict[str, Any]]:
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in found):
        raise _wrong(event, "<< merges mappings only")
    return found


def _kind_of(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind[:60] if isinstance(kind, str) else "something without a kind"


def _wrong(event: Any, sentence: str) -> InvalidInput:
    mark = event.start_mark
    return InvalidInput(f"line {mark.line + 1}, column {mark.column + 1}: {sentence}")


def _grammar(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    what = ", ".join(part for part in (error.context, error.problem) if part)
    return f"{where}no valid YAML ({what[:200]})"
