"""What ended a group of tasks, told as one error.

Rule: an error that was raised on purpose goes before one that was not foreseen only where it stands alone.
"""

from voda.domain.errors import VodaError


def most_telling_error(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error that stands for the group: what was not foreseen first, else the first of ours."""
    leaves = list(_leaves(failures))
    unforeseen = [error for error in leaves if not isinstance(error, VodaError)]
    return (unforeseen or leaves)[0]


def _leaves(failures: BaseException) -> list[BaseException]:
    if not isinstance(failures, BaseExceptionGroup):
        return [failures]
    return [leaf for one in failures.exceptions for leaf in _leaves(one)]
