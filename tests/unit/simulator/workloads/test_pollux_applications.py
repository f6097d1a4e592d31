"""Claims about the six applications; the figures are check values computed from the artifact's own simulator."""

import csv
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.public_data import folder_or_skip
from voda.simulator.data import POLLUX
from voda.simulator.workloads.pollux_applications import (
    EPOCHS,
    Application,
    BatchLimits,
    PolluxProfile,
    load_application,
)
from voda.simulator.workloads.pollux_step_times import StepTimes, balanced, load_step_times

LIMITS = {
    "bert": BatchLimits(initial=12, largest=384, local_smallest=4, local_largest=12),
    "cifar10": BatchLimits(initial=128, largest=4096, local_smallest=32, local_largest=1024),
    "deepspeech2": BatchLimits(initial=20, largest=640, local_smallest=10, local_largest=80),
    "imagenet": BatchLimits(initial=200, largest=12800, local_smallest=20, local_largest=200),
    "ncf": BatchLimits(initial=256, largest=32768, local_smallest=32, local_largest=32768),
    "yolov3": BatchLimits(initial=8, largest=512, local_smallest=4, local_largest=8),
}


def _application(name: str) -> Application:
    return load_application(name, folder_or_skip(POLLUX) / "traces")


@pytest.mark.parametrize(
    ("application", "batch", "replicas", "expected"),
    [
        ("ncf", 32768, 1, (16384, 1, 32768)),
        ("cifar10", 2048, 6, (342, 0, 2052)),
        ("cifar10", 4096, 12, (341, 0, 4092)),
        ("cifar10", 4096, 6, (682, 0, 4092)),
        ("deepspeech2", 640, 12, (53, 0, 636)),
        ("deepspeech2", 320, 6, (54, 0, 324)),
        ("bert", 384, 6, (10, 5, 360)),
        ("bert", 384, 8, (12, 3, 384)),
        ("imagenet", 3200, 24, (134, 0, 3216)),
        ("yolov3", 64, 4, (8, 1, 64)),
    ],
)
def test_split_of_a_batch_is_as_in_the_artifact(
    application: str, batch: int, replicas: int, expected: tuple[int, int, int]
) -> None:
    parts = LIMITS[application].split(batch, replicas)
    assert (parts.local_batch, parts.accumulation, parts.batch) == expected


@given(name=st.sampled_from(sorted(LIMITS)), share=st.floats(0, 1), replicas=st.integers(1, 64))
def test_split_at_any_size_within_bounds_stays_within_what_was_measured(name: str, share: float, replicas: int) -> None:
    limits = LIMITS[name]
    batch = round(limits.initial + share * (limits.largest - limits.initial))
    if replicas * limits.local_smallest > batch:
        return
    parts = limits.split(batch, replicas)
    assert limits.local_smallest <= parts.local_batch <= limits.local_largest
    assert parts.batch == replicas * parts.local_batch * (parts.accumulation + 1) <= limits.largest


def test_canonical_placement_is_the_smallest_rotation_and_not_sorted() -> None:
    assert balanced((3, 2, 1)) == "132"
    assert balanced((4, 2)) == "24"
    assert balanced((1,)) == "1"


def test_step_time_when_the_placement_was_not_measured_is_refused() -> None:
    times = StepTimes({"1": [(4, (1.0, 0.5)), (8, (2.0, 0.5))]}, {})
    assert times.at((1,), 6) == (1.5, 0.5)
    with pytest.raises(ValueError, match="not measured: expected 4 to 8"):
        times.at((1,), 9)
    with pytest.raises(ValueError, match=r"placement \(5,\) was not measured"):
        times.at((5,), 4)


@pytest.mark.parametrize("name", sorted(EPOCHS))
def test_limits_of_an_application_are_those_of_its_measurements(name: str) -> None:
    application = _application(name)
    assert application.limits == LIMITS[name]
    assert len(application.goals) == application.epochs
    assert all(before < after for before, after in itertools.pairwise((0.0, *application.goals)))


@pytest.mark.parametrize(
    ("name", "per_node", "local", "step_s", "sync_s"),
    [
        ("bert", (4, 2), 10, 2.3849132309, 1.6419117483),
        ("cifar10", (3, 2, 1), 342, 0.2902949718, 0.0475524069),
        ("cifar10", (4, 2, 4, 4), 300, 0.2729142671, 0.0421622045),
        ("yolov3", (4,), 8, 0.5009251088, 0.1189618335),
        ("yolov3", (2, 2), 8, 1.2405392379, 0.9249846878),
        ("ncf", (1,), 16384, 0.0149687379, 0.0003391316),
        ("deepspeech2", (4, 4), 40, 1.5463114679, 0.3565189419),
        ("imagenet", (4,) * 5, 160, 0.8392628595, 0.0341294635),
        ("imagenet", (4,) * 8, 200, 1.0932517529, 0.0950473083),
        ("imagenet", (4,) * 12, 134, 0.7875689636, 0.1088450874),
        ("yolov3", (1,) * 5, 7, 0.8819629326, 0.5245309477),
    ],
)
def test_step_time_is_as_in_the_artifact(
    name: str, per_node: tuple[int, ...], local: int, step_s: float, sync_s: float
) -> None:
    assert _application(name).step_times.at(per_node, local) == pytest.approx((step_s, sync_s), abs=1e-10)


def test_step_times_beyond_four_nodes_are_those_of_the_original_interpolation() -> None:
    table = folder_or_skip(POLLUX).parent / "pollux-nd-times.csv"
    if not table.is_file():
        pytest.skip("pollux-nd-times.csv is not beside the data set")
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    traces = folder_or_skip(POLLUX) / "traces"
    from_scipy = {name: load_step_times(traces / name) for name in EPOCHS}
    for row in rows[::7]:
        nodes, replicas = int(row["num_nodes"]), int(row["num_replicas"])
        per_node = (replicas - nodes + 1,) + (1,) * (nodes - 1)
        times = from_scipy[row["application"]].at(per_node, int(row["local_bsz"]))
        assert times == pytest.approx((float(row["step_time"]), float(row["sync_time"])), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "batch", "gain"),
    [
        # (V + S) / (V / (batch / initial) + S) at the check values of S and V in row 1.
        ("cifar10", 4092, (1.9251189274 + 0.6412495699) / (1.9251189274 / (4092 / 128) + 0.6412495699)),
        ("deepspeech2", 636, (2.4925534548 + 0.8122821697) / (2.4925534548 / (636 / 20) + 0.8122821697)),
    ],
)
def test_gain_of_a_batch_between_two_measured_ones_is_interpolated(name: str, batch: int, gain: float) -> None:
    assert _application(name).gain(batch, 1) == pytest.approx(gain, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "goal"),
    [("cifar10", 781.5989447), ("deepspeech2", 713.4311986), ("ncf", 38835.0), ("bert", 14774.0)],
)
def test_goal_of_an_epoch_is_the_least_progress_of_all_batch_sizes(name: str, goal: float) -> None:
    assert _application(name).goals[1] == pytest.approx(goal, abs=1e-7)


def test_gain_at_a_batch_that_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="measured with batches of 12 to 384, got 400"):
        _application("bert").gain(400, 0)


def _rate(application: Application, batch: int, per_node: tuple[int, ...], epoch: int) -> float:
    """Return the progress per second."""
    spread = application.limits.split(batch, sum(per_node)).batch
    return application.gain(spread, epoch) / application.iteration_s(batch, per_node)


def test_epoch_of_a_profile_takes_its_progress_over_the_rate() -> None:
    application = _application("cifar10")
    profile = PolluxProfile(application=application, batch=2048)
    work = application.goals[7] - application.goals[6]
    assert profile.epochs == 100
    assert profile.epoch_s(7, (4, 2)) == pytest.approx(work / _rate(application, 2048, (4, 2), 7))


def test_epoch_on_a_node_of_eight_takes_as_long_as_on_two_of_four() -> None:
    profile = PolluxProfile(application=_application("cifar10"), batch=2048)
    assert profile.epoch_s(0, (8, 2)) == profile.epoch_s(0, (4, 4, 2))


@pytest.mark.parametrize("name", sorted(EPOCHS))
def test_profile_at_every_size_and_spread_within_its_bounds_has_a_speed(name: str) -> None:
    application = _application(name)
    for batch in application.validation:
        for replicas in range(1, application.max_replicas(batch) + 1, 3):
            for nodes in {-(-replicas // 4), min(replicas, 6), min(replicas, 20)}:
                per_node = tuple(replicas // nodes + (i < replicas % nodes) for i in range(nodes))
                if max(per_node) <= 4:
                    assert _rate(application, batch, per_node, 0) > 0


def test_application_when_read_twice_is_the_same_object() -> None:
    assert _application("bert") is _application("bert")
