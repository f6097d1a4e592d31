"""Control planes and worlds for the tests of this folder."""

from tests.kube.fixtures import control_plane, control_plane_v1, world, world_v1

__all__ = ["control_plane", "control_plane_v1", "world", "world_v1"]
