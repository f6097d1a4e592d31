"""The devices of a node, and which worker holds which. Pure.

Rule: a device has one holder at a time, and a worker keeps its devices until it is gone.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from voda.domain.errors import ActionRefused


class Device(Struct, frozen=True, kw_only=True):
    """A GPU, or a CPU slot."""

    name: str
    """Unique on its node; of a GPU, what CUDA_VISIBLE_DEVICES takes."""
    model: str = ""
    """Of a GPU, as its maker calls it."""
    is_gpu: bool = True
    uuid: str = ""


def cpu_slots(count: int) -> tuple[Device, ...]:
    """Return so many slots without GPUs."""
    return tuple(Device(name=f"cpu{index}", is_gpu=False) for index in range(count))


class Slots:
    """Which worker holds which device."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self.devices: Mapping[str, Device] = {device.name: device for device in devices}
        self._holders: dict[str, tuple[str, int]] = {}

    def hold(self, job_id: str, index: int, names: Sequence[str]) -> None:
        """Note that a worker holds these devices already, whether or not they are (still) known."""
        for name in names:
            self._holders[name] = (job_id, index)

    def take(
        self, job_id: str, indices: Iterable[int], per_worker: int, *, barred: Iterable[str], node: str
    ) -> dict[int, tuple[str, ...]]:
        """Give every one of some workers its devices, or none of them any.

        Args:
            job_id: of the workers.
            indices: of the workers.
            per_worker: devices each of them needs.
            barred: devices that are not to be given away: broken ones, and those that others use.
            node: its name, for the error.

        Returns:
            worker index -> names of its devices.

        Raises:
            ActionRefused: there are too few.
        """
        wanted = sorted(indices)
        free = [name for name in self.devices if name not in self._holders and name not in set(barred)]
        if len(free) < len(wanted) * per_worker:
            raise ActionRefused(
                f"job {job_id}: needs {len(wanted) * per_worker} more GPUs on node {node}, {len(free)} free"
            )
        taken = {index: tuple(free[turn * per_worker : (turn + 1) * per_worker]) for turn, index in enumerate(wanted)}
        for index, names in taken.items():
            self.hold(job_id, index, names)
        return taken

    def release(self, job_id: str, index: int, names: Iterable[str]) -> None:
        """Note that a worker holds these devices no more; one that another worker holds is not free."""
        for name in names:
            if self._holders.get(name) == (job_id, index):
                del self._holders[name]

    def held(self) -> frozenset[str]:
        """Return the devices that workers hold."""
        return frozenset(self._holders)

    def visible(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return what CUDA_VISIBLE_DEVICES shall name for these devices; empty where they are CPU slots."""
        return tuple(name for name in names if name not in self.devices or self.devices[name].is_gpu)
