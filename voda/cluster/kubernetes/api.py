"""The API server, spoken to in trimmed objects: kubernetes-asyncio brings credentials and transport, msgspec the rest.

Rules: every call has a timeout; what the server says is one of voda's errors (errors.py), in one sentence that names
verb and path; a call is tried again here only where the server did not take it (429 with Retry-After, a connection
that was refused), and only a few times: whoever calls has a level to come back to.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Listed(Struct, Generic[T], frozen=True):
    """All objects of a kind at one resource version."""

    items: Sequence[T]
    resource_version: str


class Change(Struct, Generic[T], frozen=True):
    """One event of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T
    resource_version: str


class Api:
    """One API server."""

    async def close(self) -> None:
        """Close all connections."""
        raise NotImplementedError

    async def get(self, path: str, kind: type[T]) -> T | None:
        """Return an object; None where there is none. `kind` may be dict, for the whole object."""
        raise NotImplementedError

    async def list(self, path: str, kind: type[T], query: Mapping[str, str] | None = None) -> Listed[T]:
        """Return all objects of a collection, asked for page by page.

        Raises:
            Gone: it took so long that the pages do not belong together any more.
        """
        raise NotImplementedError

    def watch(
        self, path: str, kind: type[T], *, after: str, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[Change[T]]:
        """Yield what changes in a collection after a resource version; ends when the server ends it.

        Raises:
            Gone: that version is not kept any more.
            ClusterUnavailable: the connection broke.
        """
        raise NotImplementedError

    async def create(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        """Create an object in a collection (or post to a subresource such as pods/NAME/binding).

        Raises:
            Conflict: there is one of that name.
        """
        raise NotImplementedError

    async def patch(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T | None:
        """Change an object by a JSON merge patch; None where there is none.

        `metadata.resourceVersion` in the body makes it conditional (Conflict).
        """
        raise NotImplementedError

    async def replace(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        """Put an object in the place of one whose resourceVersion the body names.

        Raises:
            Conflict: it changed meanwhile.
        """
        raise NotImplementedError

    async def delete(self, path: str, *, uid: str = "", grace_s: int | None = None) -> bool:
        """Delete an object and, in the background, what it owns; False where there is none.

        Args:
            path: of the object.
            uid: refuse (Conflict) unless it is this very one.
            grace_s: of a pod; 0 = at once, even if its node does not answer; None = as the pod says.
        """
        raise NotImplementedError
