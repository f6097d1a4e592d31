"""`voda serve` that dies at one step: run as a program, with MORTAL=`before|after STEP COUNT` in its environment.

A step is a call that changes something outside of the process: `append worker.started`, `patch pods`,
`patch mpijobs`. Before the nth of a kind, or right after it was answered, the process is gone as by kill -9. With
MORTAL_TRACE=FILE it writes down every step that it comes to.

Rule: nothing of voda is changed but the calls themselves.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import voda.cli
from voda.kubernetes_client.api import Api
from voda.log.append_plan import Append
from voda.log.instrumented_store import InstrumentedStore

_PLURAL = re.compile(
    r"/(?:namespaces/[^/]+/)?(nodes|pods|mpijobs|pytorchjobs|resourceclaimtemplates|resourceclaims|events|leases)(?:/[^/]+(/\w+)?)?$"
)


class Fate:
    """When to die."""

    def __init__(self, text: str, trace: str) -> None:
        self.when, _, rest = text.partition(" ")
        self.step, _, count = rest.rpartition(" ")
        self.count = int(count or 0)
        self._trace = Path(trace) if trace else None
        self._seen: Counter[tuple[str, str]] = Counter()

    def meet(self, when: str, step: str) -> None:
        """Come to a step."""
        # Many are under way at a time: the nth that begins is not the nth that ends.
        self._seen[when, step] += 1
        if when == "before" and self._trace is not None:
            with self._trace.open("a") as file:
                file.write(f"{step}\n")
        if (when, step) == (self.when, self.step) and self._seen[when, step] == self.count:
            os._exit(137)


def step_of(verb: str, path: str) -> str:
    """Return the name of a step."""
    found = _PLURAL.search(path)
    assert found, path
    return f"{verb} {found[1]}{found[2] or ''}"


def make_mortal(fate: Fate) -> None:
    """Have every call that changes something come to its fate."""
    append_all = InstrumentedStore.append_all

    async def appending(self: InstrumentedStore, appends: Sequence[Append]) -> int:
        step = f"append {appends[0].facts[0].data.TYPE}"
        fate.meet("before", step)
        position = await append_all(self, appends)
        fate.meet("after", step)
        return position

    # An append to one stream is one of these.
    setattr(InstrumentedStore, "append_all", appending)  # noqa: B010 - a method is no variable to mypy
    for verb in ("create", "patch", "delete"):
        setattr(Api, verb, _calling(verb, getattr(Api, verb), fate))


def _calling(verb: str, call: Callable[..., Any], fate: Fate) -> Callable[..., Any]:
    async def calling(self: Api, path: str, *arguments: Any, **options: Any) -> Any:
        step = step_of(verb, path)
        fate.meet("before", step)
        result = await call(self, path, *arguments, **options)
        fate.meet("after", step)
        return result

    return calling


if __name__ == "__main__":
    environment = os.environ  # noqa: TID251 - a program of the tests
    make_mortal(Fate(environment.get("MORTAL", ""), environment.get("MORTAL_TRACE", "")))
    voda.cli.main()
