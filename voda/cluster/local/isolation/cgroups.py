"""The control groups of replicas, by which the kernel limits memory, CPU and processes, and refuses GPUs of others.

A replica gets a group in each hierarchy that limits something of it, and in the one that shares CPUs: one with cgroup
v2, one for each controller with v1. Its shim moves the program into them, and removes them at its end. Rules: voda
works only in a part of the tree that is delegated to it: the service manager owns the rest. With v2 a group holds
processes or groups, never both, so voda itself goes into a group of its own first. Device files are refused with v1
only: v2 would need an eBPF program.
"""

import hashlib
import os
import re
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from voda.cluster.local.isolation.limits import Limits

CONTROLLERS: Final = ("memory", "cpu", "pids")
DEVICES: Final = "devices"
_SWAP: Final = "memory.swap.max"
"""Not there where the kernel knows no swap."""
_NVIDIA_MAJOR: Final = 195
_CPU_PERIOD_US: Final = 100_000
_OWN: Final = "voda"
"""Group of voda itself, with v2; systemd puts it there by DelegateSubgroup=voda."""
_MOUNT: Final = re.compile(r"\S+ \S+ \S+ (?P<root>\S+) (?P<point>\S+) .* - (?P<kind>cgroup2?) \S+ (?P<options>\S+)")
_GPU: Final = re.compile(r"nvidia([0-9]+)")


class Hierarchy(Struct, frozen=True, kw_only=True):
    """A part of one tree of control groups in which voda makes groups."""

    base: Path
    controllers: frozenset[str]
    is_v2: bool

    def settings(self, limits: Limits, gpus: frozenset[int]) -> list[tuple[str, str]]:
        """Return which files of a group to write, and what, in this order; `gpus` are all of the machine."""
        memory, cpu, pids = limits.memory_bytes, limits.cpu_milli, limits.pids
        quota = None if cpu is None else max(cpu * _CPU_PERIOD_US // 1_000, 1_000)
        none = "max" if self.is_v2 else "-1"
        allowed = gpus if limits.gpus is None else limits.gpus
        written = {
            # Of v2 the limit does not count what is swapped out.
            "memory": [("memory.max", str(memory or none)), (_SWAP, "0" if memory else none)]
            if self.is_v2
            else [("memory.limit_in_bytes", str(memory or none))],
            # Among groups the kernel shares CPUs by their weights, whatever the niceness of what is in them.
            "cpu": [("cpu.max", f"{quota or none} {_CPU_PERIOD_US}"), ("cpu.weight.nice", str(limits.nice))]
            if self.is_v2
            else [("cpu.cfs_quota_us", str(quota or none)), ("cpu.shares", str(round(1024 / 1.25**limits.nice)))],
            "pids": [("pids.max", str(pids or "max"))],
            "devices": [
                *(("devices.deny", f"c {_NVIDIA_MAJOR}:{minor} rwm") for minor in sorted(gpus - allowed)),
                *(("devices.allow", f"c {_NVIDIA_MAJOR}:{minor} rw") for minor in sorted(gpus & allowed)),
            ],
        }
        return [each for controller in sorted(self.controllers) for each in written.get(controller, ())]


class Cgroups(Struct, frozen=True, kw_only=True):
    """Where voda makes groups, and why some limits are not enforced."""

    hierarchies: tuple[Hierarchy, ...] = ()
    obstacle: str = ""
    """Why there is none for some controllers."""
    gpus: frozenset[int] = frozenset()
    """Minor numbers of all GPUs of the machine, also of those that voda does not hand out."""

    @property
    def controllers(self) -> frozenset[str]:
        return frozenset().union(*(each.controllers for each in self.hierarchies))

    def make(self, name: str, limits: Limits) -> list[Path]:
        """Make the groups of a replica, or set those that are there anew, and return them.

        Raises:
            OSError: the kernel refuses.
        """
        made = []
        for each in self.hierarchies:
            if each.is_v2 or any(self._limits(limits, controller) for controller in each.controllers):
                group = each.base / name
                group.mkdir(exist_ok=True)
                made.append(group)
                try:
                    _write(group, each.settings(limits, self.gpus))
                except OSError:
                    self.remove(name)
                    raise
        return made

    def change(self, name: str, limits: Limits) -> None:
        """Set the groups of a replica anew, as far as they are there; raises OSError where the kernel refuses."""
        for each in self.hierarchies:
            if (each.base / name).is_dir():
                _write(each.base / name, each.settings(limits, self.gpus))

    def groups(self, name: str) -> list[Path]:
        """Return the groups of a replica that are there."""
        return [group for each in self.hierarchies if (group := each.base / name).is_dir()]

    def remove(self, name: str) -> None:
        """Kill what is left in the groups of a replica whose shim could not, and remove them if they are empty then."""
        for group in self.groups(name):
            with suppress(OSError):
                for pid in (group / "cgroup.procs").read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                group.rmdir()

    def remove_empty(self, prefix: str) -> None:
        """Remove the groups whose names begin so and that hold no process: what replicas of an earlier voda left.

        A group that was made for a replica that has not entered it yet would go too: call this before any starts.
        """
        for each in self.hierarchies:
            with suppress(OSError):
                for group in each.base.glob(f"{prefix}*/"):
                    # The kernel refuses where a process is in it.
                    with suppress(OSError):
                        group.rmdir()

    def _limits(self, limits: Limits, controller: str) -> bool:
        if controller == DEVICES:
            return limits.gpus is not None and not self.gpus <= limits.gpus
        if controller == "cpu":
            # Without a limit too: the kernel shares CPUs among groups, so that a replica with ten thousand processes
            # takes no more of voda's time than one with a single process.
            return True
        asked = {"memory": limits.memory_bytes, "pids": limits.pids}
        return asked[controller] is not None


def memory_kills(group: Path) -> int:
    """Return how many processes of a control group the kernel has killed for memory; 0 where it does not say."""
    for file in ("memory.events", "memory.oom_control"):
        with suppress(OSError):
            counters = dict(line.split(" ", 1) for line in (group / file).read_text().splitlines() if " " in line)
            return int(counters.get("oom_kill", 0))
    return 0


def group_prefix(jobs: Path) -> str:
    """Return how the names of all groups of this voda begin, and of no other voda on this machine."""
    return f"voda-{hashlib.sha256(os.fsencode(jobs.absolute())).hexdigest()[:8]}-"


def group_name(jobs: Path, job_id: str, replica: str) -> str:
    """Return the name of a replica's groups."""
    return f"{group_prefix(jobs)}{job_id}.{replica}"


def find_cgroups(proc: Path = Path("/proc/self"), system: Path = Path("/run/systemd/system")) -> Cgroups:
    """Find the part of the control groups that is delegated to this process, and prepare it; this moves the process
    into a group of its own where v2 asks for that.
    """
    try:
        mounts = [_MOUNT.fullmatch(line) for line in (proc / "mountinfo").read_text().splitlines()]
        own = dict(_own_groups((proc / "cgroup").read_text()))
    except OSError as error:
        return Cgroups(obstacle=f"control groups cannot be read: {error.strerror}")
    found, obstacle = [], "this system mounts no control groups"
    is_managed = system.is_dir()
    for mount in filter(None, mounts):
        try:
            if (hierarchy := _hierarchy(mount, own, is_managed=is_managed)) is not None:
                found.append(hierarchy)
        except OSError as error:
            why = f"{error.filename or mount['point']}: {error.strerror}"
            obstacle = str(error) if isinstance(error, _NotDelegated) else why
    return Cgroups(hierarchies=tuple(found), obstacle=obstacle, gpus=_gpus(Path("/dev")))


def _gpus(folder: Path) -> frozenset[int]:
    """Return the minor numbers of the files nvidia0, nvidia1, ..."""
    numbers = (_GPU.fullmatch(path.name) for path in folder.glob("nvidia*"))
    return frozenset(int(found[1]) for found in numbers if found)


class _NotDelegated(OSError):
    def __str__(self) -> str:
        return str(self.args[0])


def _own_groups(text: str) -> Iterable[tuple[str, str]]:
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _hierarchy(mount: re.Match[str], own: Mapping[str, str], *, is_managed: bool) -> Hierarchy | None:
    is_v2 = mount["kind"] == "cgroup2"
    wanted = {""} if is_v2 else {*mount["options"].split(",")} & {*CONTROLLERS, DEVICES}
    if not wanted or (path := own.get(min(wanted))) is None:
        return None
    # A container sees the part of the tree that is its own.
    inside = path.removeprefix(mount["root"]) if mount["root"] != "/" else path
    here = Path(mount["point"]) / inside.strip("/")
    if not is_v2:
        _refuse_undelegated(here, is_managed=is_managed)
        return Hierarchy(base=here, controllers=frozenset(wanted), is_v2=False)
    base = here.parent if here.name == _OWN else here
    offered = {*(base / "cgroup.controllers").read_text().split()} & {*CONTROLLERS}
    if not offered:
        return None
    _refuse_undelegated(base, is_managed=is_managed)
    if here == base:
        if is_managed and base.suffix == ".service":
            # systemd starts a service in its group, which may hold no process once it gives controllers on.
            raise _NotDelegated(
                f"systemd would not start {base.name} again beside its jobs: it needs DelegateSubgroup={_OWN}, of"
                " systemd 254 or later"
            )
        (base / _OWN).mkdir(exist_ok=True)
        _write(base / _OWN, [("cgroup.procs", "0")])
    _write(base, [("cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(offered)))])
    return Hierarchy(base=base, controllers=frozenset(offered), is_v2=True)


def _refuse_undelegated(base: Path, *, is_managed: bool) -> None:
    if not os.access(base, os.W_OK):
        raise _NotDelegated(f"the control group {base} is not delegated to voda")
    if not is_managed:
        return
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(base, name) == b"1":
                return
    raise _NotDelegated(f"the control group {base} is systemd's, and not delegated to voda")


def _write(group: Path, settings: Iterable[tuple[str, str]]) -> None:
    for file, text in settings:
        try:
            opened = os.open(group / file, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if file == _SWAP:
                continue
            raise
        try:
            os.write(opened, text.encode())
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror} (of {text})", str(group / file)) from error
        finally:
            os.close(opened)
