"""Control planes and worlds for the tests of this folder, which are those of stand-ins."""

from tests.kube.fixtures import clusters, control_plane, control_plane_v1, pytest_collection_modifyitems
from tests.kube.fixtures import stand_in_world as world
from tests.kube.fixtures import stand_in_world_v1 as world_v1

__all__ = ["clusters", "control_plane", "control_plane_v1", "pytest_collection_modifyitems", "world", "world_v1"]
