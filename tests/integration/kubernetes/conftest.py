"""Control planes and worlds for the tests of this folder, which are those of stand-ins."""

from tests.kube.fixtures import clusters, control_plane, control_plane_v1, pytest_collection_modifyitems
from tests.kube.fixtures import stand_in_world as world
from tests.kube.fixtures import stand_in_world_v1 as world_v1
from tests.kube.parts_of_files import pytest_xdist_make_scheduler

__all__ = [
    "clusters",
    "control_plane",
    "control_plane_v1",
    "pytest_collection_modifyitems",
    "pytest_xdist_make_scheduler",
    "world",
    "world_v1",
]
