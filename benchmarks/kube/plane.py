"""A control plane for the length of one figure.

Rule: it is gone at the end, whatever happened, and its folder with it.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kube.control_plane import MPI_V2, ControlPlane, running
from tests.kube.stand_in_world import StandInWorld


class Stage(StandInWorld):
    """A world on a control plane of its own."""

    async def _sweep(self) -> None:
        """Leave everything: it goes with its control plane, and tens of thousands of objects are not deleted fast."""


@contextmanager
def control_plane(*, controllers: bool = False, scheduler: bool = False) -> Iterator[ControlPlane]:
    """Run etcd and an API server that knows MPIJob v2beta1.

    Args:
        controllers: whether kube-controller-manager runs.
        scheduler: whether kube-scheduler runs.
    """
    plane = running(controllers=controllers, scheduler=scheduler, definitions=(MPI_V2,))
    try:
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(plane.folder, ignore_errors=True)
