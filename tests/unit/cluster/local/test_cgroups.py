"""Where voda makes control groups, and what it writes into them; a folder stands for the kernel's tree."""

import os
from pathlib import Path

import pytest

from voda.cluster.local.isolation import cgroups
from voda.cluster.local.isolation.cgroups import Cgroups, Hierarchy, find_cgroups, group_name, group_prefix
from voda.cluster.local.isolation.limits import Limits

_V2 = "41 31 0:38 / {point} rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
_V1 = "35 31 0:32 / {point} rw,relatime - cgroup cgroup rw,{name}\n"
LIMITS = Limits(memory_bytes=1 << 30, cpu_milli=1_500, pids=100, gpus=frozenset({1}), nice=10)


class Tree:
    """A folder as the kernel shows its control groups, and what /proc/self says of them."""

    def __init__(self, folder: Path) -> None:
        self.root, self.proc, self.system = folder / "cgroup", folder / "proc", folder / "system"
        for made in (self.root, self.proc):
            made.mkdir()

    def v2(self, own: str = "system.slice/voda.service", offered: str = "cpuset cpu io memory pids") -> Path:
        """Let the process be in this group, and return it."""
        (self.proc / "mountinfo").write_text("24 1 8:1 / / rw - ext4 /dev/sda rw\n" + _V2.format(point=self.root))
        (self.proc / "cgroup").write_text(f"0::/{own}\n")
        group = self.root / own
        for each in (group, group / "voda", group.parent):
            each.mkdir(parents=True, exist_ok=True)
            (each / "cgroup.controllers").write_text(offered + "\n")
            for file in ("cgroup.procs", "cgroup.subtree_control"):
                (each / file).touch()
        return group

    def find(self) -> Cgroups:
        return find_cgroups(self.proc, self.system)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_group_of_v2_when_it_is_vodas_gives_its_controllers_on_and_voda_goes_into_one_of_its_own(tree: Tree) -> None:
    group = tree.v2()
    found = tree.find()
    assert found.hierarchies == (Hierarchy(base=group, controllers=frozenset({"memory", "cpu", "pids"}), is_v2=True),)
    assert (group / "voda/cgroup.procs").read_text() == "0"
    assert (group / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_group_of_v2_when_systemd_puts_voda_into_one_of_its_own_is_the_one_above(tree: Tree) -> None:
    group = tree.v2("system.slice/voda.service/voda")
    [found] = tree.find().hierarchies
    assert found.base == group.parent
    assert (group / "cgroup.procs").read_text() == ""


def test_group_when_the_system_is_systemds_has_to_be_delegated(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tree.v2("system.slice/run-1.scope")
    tree.system.mkdir()
    found = tree.find()
    assert found.hierarchies == ()
    assert found.obstacle == f"the control group {group} is systemd's, and not delegated to voda"
    monkeypatch.setattr(os, "getxattr", lambda _path, name: b"1" if name == "trusted.delegate" else b"")
    assert len(tree.find().hierarchies) == 1


def test_service_that_systemd_starts_in_its_own_group_could_not_start_again_beside_its_jobs(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tree.v2()
    tree.system.mkdir()
    monkeypatch.setattr(os, "getxattr", lambda _path, _name: b"1")
    found = tree.find()
    assert (found.hierarchies, found.obstacle.partition(":")[0]) == (
        (),
        "systemd would not start voda.service again beside its jobs",
    )
    assert (group / "voda" / "cgroup.procs").read_text() == ""


def test_group_of_v2_without_a_controller_is_none(tree: Tree) -> None:
    tree.v2(offered="io")
    assert tree.find() == Cgroups(obstacle="this system mounts no control groups", gpus=tree.find().gpus)


def test_groups_of_v1_are_one_for_each_controller(tree: Tree) -> None:
    (tree.proc / "mountinfo").write_text(
        "".join(_V1.format(point=tree.root / name, name=name) for name in ("cpu,cpuacct", "memory", "devices", "blkio"))
    )
    (tree.proc / "cgroup").write_text("4:cpu,cpuacct:/a\n3:memory:/b/c\n2:devices:/\n1:blkio:/\n")
    for place in ("cpu,cpuacct/a", "memory/b/c", "devices"):
        (tree.root / place).mkdir(parents=True)
    assert {(each.base, *each.controllers) for each in tree.find().hierarchies} == {
        (tree.root / "cpu,cpuacct/a", "cpu"),
        (tree.root / "memory/b/c", "memory"),
        (tree.root / "devices", "devices"),
    }


def test_proc_that_cannot_be_read_is_told(tree: Tree) -> None:
    assert tree.find().obstacle == "control groups cannot be read: No such file or directory"


def test_settings_of_v2_are_those_of_the_kernels_documentation() -> None:
    hierarchy = Hierarchy(base=Path("/g"), controllers=frozenset({"memory", "cpu", "pids"}), is_v2=True)
    assert hierarchy.settings(LIMITS, frozenset()) == [
        ("cpu.max", "150000 100000"),
        ("cpu.weight.nice", "10"),
        ("memory.max", str(1 << 30)),
        ("memory.swap.max", "0"),
        ("pids.max", "100"),
    ]
    assert [text for _, text in hierarchy.settings(Limits(), frozenset())] == ["max 100000", "0", "max", "max", "max"]


def test_group_of_v2_with_a_memory_limit_swaps_nothing_out_where_the_kernel_knows_swap(tmp_path: Path) -> None:
    hierarchy = Hierarchy(base=tmp_path, controllers=frozenset({"memory"}), is_v2=True)
    for name, files in (("swap", ("memory.max", "memory.swap.max")), ("none", ("memory.max",))):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
        [made] = Cgroups(hierarchies=(hierarchy,)).make(name, LIMITS)
        assert {path.name for path in made.iterdir()} == set(files)
        assert (made / "memory.max").read_text() == str(1 << 30)
    assert (tmp_path / "swap/memory.swap.max").read_text() == "0"
    (tmp_path / "broken").mkdir()
    with pytest.raises(FileNotFoundError):
        Cgroups(hierarchies=(hierarchy,)).make("broken", LIMITS)


def test_settings_of_v1_also_refuse_the_gpus_of_others() -> None:
    controllers = frozenset({"memory", "cpu", "pids", "devices"})
    hierarchy = Hierarchy(base=Path("/g"), controllers=controllers, is_v2=False)
    assert hierarchy.settings(LIMITS, frozenset({0, 1, 2})) == [
        ("cpu.cfs_quota_us", "150000"),
        ("cpu.shares", "110"),
        ("devices.deny", "c 195:0 rwm"),
        ("devices.deny", "c 195:2 rwm"),
        ("devices.allow", "c 195:1 rw"),
        ("memory.limit_in_bytes", str(1 << 30)),
        ("pids.max", "100"),
    ]
    assert [text for _, text in hierarchy.settings(Limits(), frozenset())] == ["-1", "1024", "-1", "max"]


def test_groups_are_made_where_something_is_limited_and_where_cpus_are_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    monkeypatch.setattr(cgroups, "_write", lambda group, _settings: written.append(group))
    hierarchies = tuple(
        Hierarchy(base=tmp_path, controllers=frozenset({name}), is_v2=False) for name in ("cpu", "devices", "pids")
    )
    there = Cgroups(hierarchies=hierarchies, gpus=frozenset({0, 1}))
    assert there.make("none", Limits(gpus=frozenset({0, 1}))) == [tmp_path / "none"]
    assert there.make("some", Limits(pids=1)) == [tmp_path / "some"] * 2
    assert there.make("more", Limits(pids=1, cpu_milli=1, gpus=frozenset({0}))) == [tmp_path / "more"] * 3
    written.clear()
    there.change("absent", LIMITS)
    assert written == []


def test_groups_that_an_earlier_voda_left_are_removed_but_not_those_in_use_or_of_others(tmp_path: Path) -> None:
    jobs, hierarchy = Path("/a/jobs"), Hierarchy(base=tmp_path, controllers=frozenset({"pids"}), is_v2=True)
    left, used = group_name(jobs, "old", "worker-0"), group_name(jobs, "live", "worker-0")
    others = group_name(Path("/b/jobs"), "old", "worker-0")
    for name in (left, used, others):
        (tmp_path / name).mkdir()
    # The kernel removes no group with a process, a file system no folder with a file.
    (tmp_path / used / "cgroup.procs").write_text("1")
    Cgroups(hierarchies=(hierarchy,)).remove_empty(group_prefix(jobs))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([used, others])


def test_group_names_of_two_vodas_differ() -> None:
    assert group_name(Path("/a/jobs"), "j", "worker-0") != group_name(Path("/b/jobs"), "j", "worker-0")
    assert group_name(Path("/a/jobs"), "j", "worker-0").endswith("-j.worker-0")
