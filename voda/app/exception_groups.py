"""Picks the one error that stands for a group of tasks that failed.

Rule: an unexpected error goes before those that voda raises on purpose.
"""

from voda.domain.errors import VodaError


def most_telling_error(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first unexpected error of a group, else its first error."""
    leaves = list(_leaves(failures))
    unexpected = [error for error in leaves if not isinstance(error, VodaError)]
    return (unexpected or leaves)[0]


def _leaves(failures: BaseException) -> list[BaseException]:
    if not isinstance(failures, BaseExceptionGroup):
        return [failures]
    return [leaf for one in failures.exceptions for leaf in _leaves(one)]
