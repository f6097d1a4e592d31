"""What an API server answers becomes the right error, and one short sentence."""

import pytest

from voda.domain.errors import ActionRefused, ClusterUnavailable
from voda.kubernetes_client.errors import (
    Absent,
    Conflict,
    Gone,
    NotServed,
    Rejected,
    StatusBody,
    Throttled,
    error_of,
    parse_status,
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, Rejected),
        (401, ClusterUnavailable),
        (403, Rejected),
        (404, NotServed),
        (408, ClusterUnavailable),
        (409, Conflict),
        (410, Gone),
        (422, Rejected),
        (429, Throttled),
        (500, ClusterUnavailable),
        (503, ClusterUnavailable),
        (504, ClusterUnavailable),
        (0, ClusterUnavailable),
        (999, ClusterUnavailable),
    ],
)
def test_every_status_is_one_error(code: int, expected: type[Exception]) -> None:
    assert type(error_of("get /x", parse_status(code, b""))) is expected


def test_webhook_that_does_not_answer_is_a_refusal_and_no_outage_of_the_server() -> None:
    body = (
        b'{"reason": "InternalError", "message": "Internal error occurred: failed calling webhook \\"a.b\\": refused"}'
    )
    said = error_of("patch /x", parse_status(500, body))
    assert isinstance(said, Rejected)
    assert 'failed calling webhook "a.b"' in str(said)


def test_a_404_that_names_an_object_is_no_reason_to_try_again() -> None:
    said = error_of("get /x", parse_status(404, b'{"details": {"name": "x"}}'))
    assert isinstance(said, Absent)
    assert isinstance(said, ActionRefused)


@pytest.mark.parametrize(("field", "expected"), [("metadata.uid", Conflict), ("spec.template", Rejected)])
def test_a_422_is_a_conflict_where_another_object_has_the_name(field: str, expected: type[Exception]) -> None:
    body = b'{"reason": "Invalid", "details": {"name": "x", "causes": [{"field": "%s"}]}}' % field.encode()
    assert type(error_of("patch /x", parse_status(422, body))) is expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [("7", 7.0), (" 7 ", 7.0), ("", 1.0), ("soon", 1.0), ("-1", 1.0), ("nan", 1.0), ("٣", 1.0), ("9" * 400, 3600.0)],
)
def test_patience_is_what_the_header_says_in_whole_seconds_within_reason(header: str, expected: float) -> None:
    said = error_of("get /x", StatusBody(code=429), header)
    assert isinstance(said, Throttled)
    assert said.retry_after_s == expected


def test_patience_is_what_the_status_says_where_there_is_no_header() -> None:
    said = error_of("get /x", parse_status(429, b'{"details": {"retryAfterSeconds": 3}}'))
    assert isinstance(said, Throttled)
    assert said.retry_after_s == 3.0


def test_the_sentence_is_one_short_line_whatever_was_said() -> None:
    sentence = str(
        error_of("get /x", parse_status(500, b'{"reason": "R", "message": "a\\n\\tb\\u001b[31m' + b"x" * 5000 + b'"}'))
    )
    assert sentence.startswith("cannot get /x: the API server answers 500 R: a b [31mxxx")
    assert sentence.isprintable()
    assert len(sentence) < 500


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[" * 100_000, b'{"code": "x"}', b'{"message": null}'])
def test_a_body_that_is_no_status_is_told_as_text(body: bytes) -> None:
    assert str(error_of("get /x", parse_status(500, body))).startswith("cannot get /x: the API server answers 500")
