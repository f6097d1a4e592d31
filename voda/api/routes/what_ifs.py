"""What another policy would have decided from a moment on, asked and answered over HTTP."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from voda.api.admission import CallerLimits
from voda.api.operation import Operation, RequestBody, Response, Routes
from voda.api.requests import body_of, json_response
from voda.api.what_ifs import AskedWhatIf, WhatIfQuestion, WhatIfs
from voda.application.journal import Journal
from voda.application.lookup import known_pool
from voda.auth.callers import Caller
from voda.domain.errors import InvalidField, InvalidInput
from voda.domain.settings import checked_fair_share
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.timetravel.moment import find, parse_moment
from voda.wire.base import view_of
from voda.wire.what_ifs import WhatIfRequest, WhatIfView

_ID: Final = {"what_if_id": "As its answer to the question said."}
_PATH: Final = "/api/v1/what-ifs/{what_if_id}"


@dataclass
class WhatIfRoutes(Routes):
    """The operations on what-ifs."""

    tag = "Moments"

    journal: Journal
    limits: CallerLimits
    pools: Sequence[str]
    what_ifs: WhatIfs

    @Operation(
        "POST",
        "/api/v1/what-ifs",
        description="The recorded submissions, changes and nodes are simulated again with another policy, in a process"
        " of its own: ask for the answer until its state is done or failed. The same question is asked once.",
        body=RequestBody(of=WhatIfRequest),
        answers=[Response(status=202, of=WhatIfView)],
        problems=[404, 429, 503],
    )
    async def ask_what_if(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Ask what another policy would have decided from a moment on."""
        asked = await body_of(request, WhatIfRequest, self.limits)
        with _naming("policy"):
            policy = POLICIES.choose(asked.policy).name
        with _naming("placer"):
            placer = PLACERS.choose(asked.placer).name if asked.placer else ""
        with _naming("fair_share"):
            fair_share = checked_fair_share(asked.fair_share)
        with _naming("at"):
            place = await find(self.journal.store, parse_moment(asked.at))
        question = WhatIfQuestion(
            position=place.position,
            pool=known_pool(self.pools, self.journal.view, asked.pool),
            policy=policy,
            placer=placer,
            fair_share=fair_share,
        )
        return json_response(_view(self.what_ifs.ask(question, caller)), status=202)

    @Operation("GET", _PATH, path_parameters=_ID, answers=[Response(of=WhatIfView)], problems=[404])
    async def get_what_if(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Get a what-if of yours, and its answer once it is there."""
        return json_response(_view(self.what_ifs.get(request.match_info["what_if_id"], caller)))

    @Operation("DELETE", _PATH, path_parameters=_ID, answers=[Response(status=204, media_type="")], problems=[404])
    async def delete_what_if(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """End a what-if of yours and forget it."""
        self.what_ifs.drop(request.match_info["what_if_id"], caller)
        return web.Response(status=204)


@contextmanager
def _naming(field: str) -> Iterator[None]:
    """Say of which field an invalid input is."""
    try:
        yield
    except InvalidField:
        raise
    except InvalidInput as error:
        raise InvalidField(field, str(error)) from error


def _view(one: AskedWhatIf) -> WhatIfView:
    answer = one.answer
    return view_of(
        WhatIfView,
        one,
        one.question,
        comparison=answer.comparison if answer is not None else None,
        recorded=answer.recorded if answer is not None else None,
        what_if=answer.what_if if answer is not None else None,
    )
