"""Which of several errors is told."""

from voda.app.exception_groups import most_telling_error
from voda.domain.errors import Fenced, InvalidInput


def test_group_when_it_holds_one_error_is_that_error() -> None:
    error = InvalidInput("no")
    assert most_telling_error(BaseExceptionGroup("group", [BaseExceptionGroup("inner", [error])])) is error


def test_group_when_something_was_not_foreseen_tells_that() -> None:
    bug = KeyError("bug")
    assert most_telling_error(BaseExceptionGroup("group", [Fenced("later leader"), bug])) is bug
