"""`$(VAR)` follows Kubernetes, and no expansion costs more than the kernel would give it."""

import re
import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from voda.domain.errors import InvalidField
from voda.manifests.expansion import MOST_BYTES, MOST_TEXT_BYTES, Expansion


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("train --epochs $(EPOCHS)", "train --epochs 7"),
        ("$(EPOCHS)$(EPOCHS)", "77"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(EPOCHS)", "$(EPOCHS)"),
        ("$$$(EPOCHS)", "$7"),
        ("$$$$(EPOCHS)", "$$(EPOCHS)"),
        ("$EPOCHS ${EPOCHS}", "$EPOCHS ${EPOCHS}"),
        ("$(EPOCHS", "$(EPOCHS"),
        ("$(EPOCHS $(EPOCHS)", "$(EPOCHS $(EPOCHS)"),
        ("$() $", "$() $"),
        ("$(REFERS)", "$(EPOCHS)"),
    ],
)
def test_text_when_it_has_references_follows_kubernetes(text: str, becomes: str) -> None:
    assert Expansion({"EPOCHS": "7", "REFERS": "$(EPOCHS)"}).word(text, "command") == becomes


_SPECIFIED = re.compile(r"\$(?:\$|\(([^)]*)\))")
"""References, as simple as can be; quadratic where many are left open."""


@given(st.text("$()AB ", max_size=30), st.dictionaries(st.text("AB $(", max_size=2), st.text("$()A", max_size=5)))
@example("$$(A)$$", {"A": "$$"})
def test_text_when_it_is_anything_has_each_reference_replaced_once_from_the_left(
    text: str, env: dict[str, str]
) -> None:
    expected = _SPECIFIED.sub(lambda match: "$" if match[1] is None else env.get(match[1], match[0]), text)
    assert Expansion(env).word(text, "command") == expected


def test_text_when_it_is_as_long_as_the_kernel_takes_is_expanded_and_one_byte_more_is_refused() -> None:
    half = "x" * (MOST_TEXT_BYTES // 2)
    expansion = Expansion({"HALF": half})
    assert len(expansion.word("$(HALF)" + half[1:], "args[0]")) == MOST_TEXT_BYTES - 1
    with pytest.raises(InvalidField, match=r"^args\[0\]: expected 131072 bytes or less .*, got 131073$") as refused:
        expansion.word("$(HALF)$(HALF)", "args[0]")
    assert refused.value.field == "args[0]"


def test_variable_when_its_name_and_value_are_too_long_together_is_refused() -> None:
    expansion = Expansion({})
    expansion.set_variable("A", "x" * (MOST_TEXT_BYTES - 3), "variable A")
    with pytest.raises(InvalidField, match=r"variable AB: expected 131072 bytes or less .*, got 131073"):
        expansion.set_variable("AB", "x" * (MOST_TEXT_BYTES - 3), "variable AB")


def test_text_when_its_characters_take_several_bytes_is_measured_in_bytes() -> None:
    expansion = Expansion({"E": "é" * 40_000})
    assert len(expansion.word("$(E)", "args[0]")) == 40_000
    with pytest.raises(InvalidField, match="got 160001"):
        expansion.word("$(E)$(E)", "args[0]")


def test_all_texts_of_a_replica_when_too_long_together_are_refused_where_the_bound_is_passed() -> None:
    expansion = Expansion({"A": "x" * 100_000})
    for place in range(19):
        expansion.word("$(A)", f"args[{place}]")
    with pytest.raises(InvalidField, match=f"expected {MOST_BYTES} bytes or less of the environment and") as refused:
        expansion.word("$(A)", "args[19]")
    assert refused.value.field == "args[19]"


def test_chain_of_references_when_it_grows_tenfold_each_time_is_refused_before_it_is_built() -> None:
    expansion = Expansion({"A0": "x" * 100_000})
    tracemalloc.start()
    try:
        with pytest.raises(InvalidField, match="got 1000000004"):
            expansion.set_variable("A1", "$(A0)" * 10_000, "env[1].value")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ["$(" * 60_000, "$(A" * 40_000 + ")", "$$" * 60_000, "$(A)" * 30_000, "$()(" * 30_000])
def test_text_when_it_is_full_of_dollars_takes_no_longer_than_any_other(text: str) -> None:
    began = time.perf_counter()
    Expansion({"A": "x"}).word(text, "args[0]")
    assert time.perf_counter() - began < 1.0
