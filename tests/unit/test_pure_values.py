"""Values of the pure core: nothing changes them and their fields are named, except those listed with a reason.

`make mutants` tries these tests with every mutant of a line that the import of a module executes.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import msgspec

from tools.mutants import ROOMS

_STATE = "the state of a projection, which its events change in place"
_SHORT = "its two or three fields stand in the order in which one would say them"
MUTABLE = {
    "CategoryMeasurements": _STATE,
    "DailyUsage": _STATE,
    "EpochMeans": _STATE,
    "EpochWork": _STATE,
    "JobMeasurements": _STATE,
    "JobRecord": _STATE,
    "LiveArray": _STATE,
    "LivePool": _STATE,
    "LogSpread": _STATE,
    "RestartCosts": _STATE,
    "RunningMean": _STATE,
    "_Share": "one user's while one plan is made",
    "Shares": "what is left while one policy is at work",
    "SharingNode": _STATE,
    "SurplusHistory": _STATE,
    "UndisturbedSpan": _STATE,
    "WorkerChanges": _STATE,
    "_UsageTotals": _STATE,
    "_WorkerHold": _STATE,
    "_WorkerTotals": _STATE,
}
"""Classes whose values change -> why."""
POSITIONAL = {
    "ArrayRange": _SHORT,
    "Belief": _SHORT,
    "DependencyRequest": _SHORT,
    "EpochMeans": "two mappings, always both",
    "EpochWork": "always made empty",
    "JobSizes": "it has one field",
    "LabelCondition": _SHORT,
    "LogSpread": "always made empty",
    "Obstacle": _SHORT,
    "ReportDoubt": _SHORT,
    "ReportMarks": "an array in snapshots, where the order of the fields is its format",
    "RestartCosts": "always made empty",
    "RestartSample": "one place makes it",
    "RunningMean": "always made empty",
    "Scaling": _SHORT,
    "ScalingLaw": "the parameters of its formula",
    "Shares": _SHORT,
    "SickGpu": _SHORT,
    "UserService": _SHORT,
    "Unused": "one place makes it",
    "_Choice": "one place makes it",
    "_StepGains": "one place makes it",
    "_WorkerHold": "one place makes it",
}
"""Classes whose values may be made without the names of their fields -> why."""
SPARSE = (
    "ArrayTask",
    "ContainerGpus",
    "CellTypeSpec",
    "CellsSpec",
    "Dependency",
    "Estimate",
    "GangPod",
    "GangRequest",
    "GpuDevice",
    "GpuRequest",
    "Job",
    "JobRecord",
    "JobSpec",
    "Node",
    "NodeTerm",
    "PhysicalCellSpec",
    "PhysicalClusterSpec",
    "PinSpec",
    "PodNeeds",
    "GangAllocation",
    "QuotaSpec",
    "Requirement",
    "Taint",
    "Toleration",
    "VirtualClusterSpec",
    "WorkerCells",
)


def classes() -> Iterator[type[msgspec.Struct]]:
    for room in ROOMS:
        package = importlib.import_module(f"voda.{room}")
        names = [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
        for module in map(importlib.import_module, (package.__name__, *names)):
            for one in vars(module).values():
                if isinstance(one, type) and issubclass(one, msgspec.Struct) and one.__module__ == module.__name__:
                    yield one


def test_values_when_they_can_be_changed_are_listed_with_a_reason() -> None:
    assert sorted(one.__name__ for one in classes() if not one.__struct_config__.frozen) == sorted(MUTABLE)


def test_values_when_their_fields_need_no_names_are_listed_with_a_reason() -> None:
    positional = {
        one.__name__
        for one in classes()
        for field in inspect.signature(one).parameters.values()
        if field.kind is not inspect.Parameter.KEYWORD_ONLY
    }
    assert sorted(positional) == sorted(POSITIONAL)


def test_values_when_a_log_or_a_snapshot_has_them_leave_out_what_is_not_set() -> None:
    """The bytes of logs and snapshots depend on it, and so do their hashes."""
    sparse = [one for one in classes() if one.__struct_config__.omit_defaults]
    reasons = [one for one in classes() if one.__module__.startswith("voda.domain.reasons.")]
    assert {one.__name__ for one in reasons if one not in sparse} == set()
    assert sorted(one.__name__ for one in sparse if one not in reasons) == sorted(SPARSE)
