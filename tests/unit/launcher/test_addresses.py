"""Hosts by their addresses: a worker that comes again under its old name is another one."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from tests.virtual_time import virtually
from voda.launcher.addresses import Resolver
from voda.launcher.hosts import Discovery, Layout, allocate_slots
from voda.launcher.state_machine import HostsListed, LauncherPhase, LauncherState, Rules, step


class Names:
    """What a cluster's DNS says."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = dict(addresses)
        self.asked = 0

    async def look_up(self, host: str) -> str:
        self.asked += 1
        if host == "slow":
            await asyncio.sleep(3_600.0)
        if host not in self.addresses:
            raise OSError(f"{host}: Name or service not known")
        return self.addresses[host]


def test_host_that_has_no_address_is_not_there_until_it_has_one() -> None:
    async def run() -> None:
        names = Names({"a-0": "10.0.0.1"})
        resolver = Resolver(names.look_up)
        assert await resolver.addresses(["a-0", "a-1", "slow"]) == {"a-0": "10.0.0.1"}
        names.addresses["a-1"] = "10.0.0.2"
        assert await resolver.addresses(["a-0", "a-1"]) == {"a-0": "10.0.0.1", "a-1": "10.0.0.2"}

    virtually(run())


def test_host_that_cannot_be_looked_up_for_a_while_keeps_its_address() -> None:
    async def run() -> None:
        names = Names({"a-0": "10.0.0.1"})
        resolver = Resolver(names.look_up)
        await resolver.addresses(["a-0"])
        names.addresses.clear()
        await asyncio.sleep(60.0)
        assert await resolver.addresses(["a-0"]) == {"a-0": "10.0.0.1"}
        assert names.asked == 2

    virtually(run())


def test_names_are_looked_up_no_more_often_than_every_five_seconds() -> None:
    async def run() -> None:
        names = Names({"a-0": "10.0.0.1"})
        resolver = Resolver(names.look_up)
        for _ in range(20):
            await resolver.addresses(["a-0"])
            await asyncio.sleep(0.5)
        assert names.asked == 2

    virtually(run())


def test_discovery_leaves_out_hosts_without_an_address(tmp_path: Path) -> None:
    script = tmp_path / "hosts.sh"
    script.write_text("echo a-0\necho a-1\n")

    async def listed() -> Layout:
        return await Discovery(script, slots_per_host=2, resolver=Resolver(Names({"a-1": "::1"}).look_up)).list_hosts()

    assert asyncio.run(listed()) == Layout(slots={"a-1": 2}, addresses={"a-1": "::1"})


def test_program_starts_again_where_a_host_has_another_address_under_the_same_name() -> None:
    # A growth would have to stay listed first.
    rules = Rules(min_np=1, settle_s=5.0)
    before = Layout(slots={"a-0": 1, "a-1": 1}, addresses={"a-0": "10.0.0.1", "a-1": "10.0.0.2"})
    after = Layout(slots=before.slots, addresses={**before.addresses, "a-1": "10.0.0.9"})
    assert allocate_slots(before, 2, before) is before
    running = LauncherState(phase=LauncherPhase.RUNNING, listed=before, used=before)
    state, actions = step(running, HostsListed(before), rules, 10.0)
    assert (state.phase, list(actions)) == (LauncherPhase.RUNNING, [])
    state, actions = step(running, HostsListed(after), rules, 10.0)
    assert state.phase is LauncherPhase.STOPPING
    assert "hosts have other addresses: 2 on a-0:1 a-1:1" in str(actions[0])
