"""Claims about refusals of the server: the sentence stays, and so does whether to try again."""

import msgspec
import pytest
from msgspec import Struct

from voda.client.decoding import decode
from voda.client.errors import error_of
from voda.domain.errors import AlreadyExists, InvalidField, NotAllowed, NotFound, PermanentError, TransientError
from voda.domain.reasons.outcomes import Halted, JobReason
from voda.wire.base import Problem, UnknownReason


class _Explained(Struct):
    reason: JobReason | UnknownReason | None
    message: str


class _Answer(Struct):
    items: list[_Explained]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, NotAllowed),
        (404, NotFound),
        (409, AlreadyExists),
        (418, PermanentError),
        (429, TransientError),
        (500, PermanentError),
        (503, TransientError),
    ],
)
def test_problem_becomes_an_error_with_its_sentence(status: int, kind: type[Exception]) -> None:
    error = error_of(status, msgspec.json.encode(Problem(title="No", status=status, detail="it is so")))
    assert isinstance(error, kind)
    assert str(error) == "it is so"


def test_refusal_for_want_of_a_token_says_how_to_give_one_here() -> None:
    error = error_of(401, msgspec.json.encode(Problem(title="No", status=401, detail="this needs a token")))
    assert isinstance(error, NotAllowed)
    assert str(error) == "this needs a token (on the command line: --token, or VODA_TOKEN)"


def test_problem_of_a_field_keeps_the_field() -> None:
    error = error_of(422, msgspec.json.encode(Problem(title="No", status=422, detail="too big", field="spec.a")))
    assert isinstance(error, InvalidField)
    assert error.field == "spec.a"


def test_answer_that_is_no_problem_is_quoted() -> None:
    assert str(error_of(502, b"<html>\nBad   Gateway")) == "the server answered 502: <html> Bad Gateway"
    assert str(error_of(504, b"")) == "the server answered 504"


def test_reason_of_a_newer_server_keeps_its_kind_and_its_words() -> None:
    newer = b'{"reason":{"kind":"moonlight","hour":3},"message":"the moon is full"}'
    answer = b'{"items":[%b,{"reason":{"kind":"halted","text":""},"message":"halted"}]}' % newer
    unknown, known = decode(answer, _Answer).items
    assert (unknown.reason, unknown.message) == (UnknownReason(of="moonlight"), "the moon is full")
    assert known.reason == Halted(text="")
