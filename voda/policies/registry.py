"""The policies there are; one file each, no list to edit."""

from collections.abc import Mapping
from functools import cache

from voda import policies as package
from voda.domain.plugins import chosen, classes_with
from voda.policies.base import Policy


@cache
def policies() -> Mapping[str, Policy]:
    """Return all policies by name, sorted."""
    return {name: part() for name, part in classes_with("allocate", package).items()}


def policy(name: str) -> Policy:
    """Return the policy of that name.

    Raises:
        InvalidInput: there is none of that name.
    """
    return chosen(name, policies(), what="policy")
