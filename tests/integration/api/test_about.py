"""The server about itself and about who asks."""

from pathlib import Path

from msgspec.structs import asdict

from tests.builders import a_spec
from tests.service import a_service
from voda import __version__
from voda.auth.callers import Caller, CallerView
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.events.types import JobSubmitted
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.wire.base import ServiceView


async def test_page_when_asked_for_then_tells_version_pools_and_position() -> None:
    async with a_service(pools=("default", "v100")) as service:
        position = await service.happens(JobSubmitted(spec=a_spec("a", pool="k80")))
        page = (await service.ask("GET", "/api/v1")).as_a(ServiceView)
        assert page == ServiceView(
            version=__version__,
            pools=("default", "k80", "v100"),
            position=position,
            policies=tuple(POLICIES),
            placers=tuple(PLACERS),
        )


async def test_whoami_when_asked_with_a_token_then_tells_whose_it_is(tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, VirtualClock(0.0))
    tokens = {
        (tmp_path / "admin.token").read_text().strip(): Caller(user="admin", role="admin"),
        access.add("ann", "user"): Caller(user="ann", role="user"),
        access.add("eve", "viewer"): Caller(user="eve", role="viewer"),
        access.job_token("a"): Caller(user="", role="job", job_id="a"),
    }
    async with a_service(access=access) as service:
        for token, who in tokens.items():
            assert (await service.ask("GET", "/api/v1/whoami", token=token)).as_a(CallerView) == CallerView(
                **asdict(who)
            )
        assert (await service.ask("GET", "/api/v1/whoami")).status == 401
        assert (await service.ask("GET", "/api/v1/whoami", token="voda_x")).status == 401
