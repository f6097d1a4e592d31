"""What text is a manifest, and what is refused before it can do harm."""

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from voda.domain.errors import InvalidInput
from voda.manifests.odd_values import MOST_DEPTH
from voda.manifests.text import MOST_BYTES, read
from voda.manifests.yaml_text import MOST_VALUES

_LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 9)
)
_MERGES = "m0: &m0 {k: [1,2,3,4,5,6,7,8,9]}\n" + "\n".join(
    f"m{level}: &m{level} {{<<: [{','.join([f'*m{level - 1}'] * 9)}]}}" for level in range(1, 9)
)
_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # The characters that YAML allows unescaped.
    | st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=["C", "Z"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc<-_", min_size=1), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": [1, 2.5, null, true, "x"]}', {"a": [1, 2.5, None, True, "x"]}),
        (b"\xef\xbb\xbfa: 1", {"a": 1}),
        (b"{a: 1, b: {c: x}}", {"a": 1, "b": {"c": "x"}}),
        (b'{"a": 1,}', {"a": 1}),
        (b"---\na: 1\n---\n", {"a": 1}),
        (b"a: 2024-01-01\nb: 1:30\nc: 08", {"a": "2024-01-01", "b": "1:30", "c": "08"}),
        (b"a: 1e3\nb: 0x1f\nc: 010", {"a": 1e3, "b": 31, "c": 8}),
        (b"a: 0o10\nb: 1_000\nc: -0b11", {"a": 8, "b": 1000, "c": -3}),
        (b"a: 'null'\nb: ~\nc:\nd: !!str 5\ne: <<", {"a": "null", "b": None, "c": None, "d": "5", "e": "<<"}),
        (b"a: on\nb: No\nc: 'on'", {"a": True, "b": False, "c": "on"}),
        (b"a: |\n  one\n  two\nb: >\n  one\n  two\n", {"a": "one\ntwo\n", "b": "one two\n"}),
        (b"a: &x {p: 1, q: 2}\nb: *x", {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 2}}),
        (b"a: &x {p: 1, q: 2}\nc: {<<: *x, q: 3}", {"a": {"p": 1, "q": 2}, "c": {"q": 3, "p": 1}}),
        (b"a: &x {p: 1}\nc: {<<: [*x, {p: 2, r: 3}]}", {"a": {"p": 1}, "c": {"p": 1, "r": 3}}),
    ],
)
def test_text_when_it_is_json_or_yaml_is_read(body: bytes, value: dict[str, Any]) -> None:
    assert read(body) == value


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "the file is empty"),
        (b" \n# nothing\n", "the file is empty"),
        (b"hello", "expected a mapping with apiVersion and kind, got a single value"),
        (b"[1]", "expected a mapping with apiVersion and kind, got a list"),
        (b"a: 1\nb: \xff", "line 2: the manifest is not UTF-8"),
        ("a: ü".encode("utf-16"), "not UTF-8"),
        (b"a: 1\n\0", "line 2: a NUL character"),
        (b'{"a": "\\u0000"}', "NUL character"),
        (b'a: "\\0"', "NUL character"),
        (b'{"a": "\\ud800"}', "half a character"),
        (b'{"\\udfff": 1}', "half a character"),
        (b'a: "\\ud800"', "line 1, column 7"),
        (b"a: \x01", "which YAML does not allow"),
        (b"a: 1\na: 2", "line 2, column 1: key 'a' occurs twice"),
        (b'{"a": 1, "a": 2}', "key 'a' occurs twice"),
        (b"{a: 1, 'a': 2}", "key 'a' occurs twice"),
        (b"kind: MPIJob\n---\nkind: ConfigMap\n", "got 2 .MPIJob at line 1, ConfigMap at line 3."),
        (b"a: [1, 2", "line 2, column 1: no valid YAML"),
        (b'{"a": ', "line 1, column 7: no valid JSON"),
        (b'{"a": 1} x', "line 1, column 10: no valid JSON"),
        (b"a:\n\t- b", "line 2, column 1: no valid YAML .a tab: indent with spaces.$"),
        (b"a: [1,\n\t2", "no valid YAML"),
        (b"a: !!python/object/apply:os.system [ls]", "line 1, column 4: tag !!python/object/apply:os.system"),
        (b"a: !!binary aGVsbG8=", "tag !!binary"),
        (b"!!set {a: null}", "tag !!set"),
        (b"a: !mine 3", "tag !mine"),
        (b"1: x", "line 1, column 1: key '1' is no string"),
        (b"true: x", "key 'true' is no string"),
        (b"? [a]\n: b", "a key is a collection"),
        (b"a: &k [1]\n*k : 2", "a key is a collection"),
        (b"a: &k 1\n*k : 2", "key '1' is no string"),
        (b"a: *nowhere", "line 1, column 4: no valid YAML .found undefined alias"),
        (b"a: &a [*a]", "line 1, column 4: an alias repeats a value within itself"),
        (b"a: &a {<<: *a}", "line 1, column 4: an alias repeats a value within itself"),
        (b"a: {<<: 3}", "line 1, column 9: .*expected a mapping or list of mappings for merging"),
        (b"a: !!int 3", "tag !!int is not supported"),
        (b"a: !<int> 3", "tag int is not supported"),
        (b"a: !!str [1]", "line 1, column 4: tag !!str is not supported"),
        (b"a: !!str []", "line 1, column 4: .*expected a scalar"),
        (b"<<: !!str {a: 1}", "line 1, column 5: tag !!str is not supported"),
        (b"a: &x 1\nb: &x 2", "line 2, column 4: .*duplicate anchor"),
        (b"a: !!map [1]", "line 1, column 4: .*expected a mapping"),
        (b"a: .nan", ".nan is not a number"),
        (b"a: -.INF", "-.INF is not a number"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": -Infinity}', "-Infinity is not a number"),
        (b'{"a": 1e999}', "1e999 is too big"),
        (b"a: 1.0e+999", "is too big"),
        (b'{"a": 9223372036854775808}', "is too big: expected 64 bits"),
        (b"a: 9223372036854775808", "is too big: expected 64 bits"),
        (b"a: 0x" + b"f" * 100_000, "is too big: expected 64 bits"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "is too big: expected 64 bits"),
    ],
)
def test_text_when_it_is_no_plain_mapping_is_refused_with_its_place(body: bytes, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        read(body)


@pytest.mark.parametrize(
    "body",
    [
        _LAUGHS.encode(),
        _MERGES.encode(),
        b"a: " + b"[" * 500_000,
        b"a: " + b"{b: " * 200_000,
        b'{"a":' * 100_000,
        b'{"a":' * 300 + b"1" + b"}" * 300,
        b'{"a": [' + b"1," * 500_000 + b"1]}",
        b'{"a": [' + b"{}," * 300_000 + b"1]}",
        b"{" + b",".join(b'"k%d":"\\"' % key for key in range(90_000)),
        b"- " * 300_000,
        b"? " * 300_000,
        b"a: [" + b"1," * 400_000 + b"1]",
        b"a: " + b"&x " * 200_000,
        b"a: " + b"!" * 500_000,
        b"'" * 900_000,
        b"a: &a '" + b"x" * 900_000 + b"'\nb: [*a, *a]",
        b"x" * (MOST_BYTES + 1),
    ],
    ids=lambda body: body[:12].decode(),
)
def test_bomb_when_read_is_refused_at_once(body: bytes) -> None:
    # Of this thread alone: others may have the machine.
    begin = time.thread_time()
    with pytest.raises(InvalidInput):
        read(body)
    # Far more than it takes; blown up, each of these would take minutes or all memory.
    assert time.thread_time() - begin < 10


def test_depth_when_at_the_bound_is_read_in_either_language() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a":' * depth + b"1" + b"}" * depth

    assert read(nested(MOST_DEPTH)) == read(b"# yaml\n" + nested(MOST_DEPTH))
    for beginning in (b"", b"# yaml\n"):
        with pytest.raises(InvalidInput, match="nested deeper than"):
            read(beginning + nested(MOST_DEPTH + 1))


def test_aliases_when_they_deepen_what_they_repeat_count_towards_the_depth() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{level}: &a{level} [*a{level - 1}]" for level in range(1, MOST_DEPTH + 1)]
    with pytest.raises(InvalidInput, match="nested deeper than"):
        read("\n".join(lines).encode())


def test_values_when_at_the_bound_are_read() -> None:
    body = b"a: [" + b"1," * (MOST_VALUES - 4) + b"1]"
    assert len(read(body)["a"]) == MOST_VALUES - 3
    with pytest.raises(InvalidInput, match="more than 20000 values"):
        read(body.replace(b"1]", b"1, 1]"))


def test_json_when_a_long_text_holds_commas_is_read() -> None:
    script = '[{"a", \\"b' * 10_000
    assert read(json.dumps({"args": [script]}).encode()) == {"args": [script]}


@given(st.dictionaries(st.text("abc", min_size=1), _PLAIN, max_size=5))
def test_text_when_written_from_values_reads_as_them(value: dict[str, Any]) -> None:
    assert read(json.dumps(value).encode()) == value
    assert read(yaml.safe_dump(value, allow_unicode=True).encode()) == value


@given(st.binary(max_size=200) | st.text("{}[]:,-?&*!|>'\"%@` \n#ab<1.~\t\\", max_size=60).map(str.encode))
def test_text_when_it_is_garbage_is_read_or_refused(body: bytes) -> None:
    try:
        value = read(body)
    except InvalidInput:
        return
    # What is accepted can be stored and comes back the same.
    assert json.loads(json.dumps(value, allow_nan=False)) == value
