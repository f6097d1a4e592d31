"""The callbacks, against the smallest stand-ins of the frameworks' base classes; no framework is installed here."""

import atexit
import csv
import importlib
import math
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import voda.report
from voda.callbacks import _distributed
from voda.callbacks._distributed import EpochReporter, samples_in
from voda.callbacks.transformers import StepCounts, place_in_data

NAMES = ("keras", "lightning", "transformers")


class Base:
    """What every framework's base class of callbacks is at its least."""


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that returns the rows reported so far."""
    monkeypatch.setenv("VODA_METRICS_DIR", str(tmp_path))
    monkeypatch.setenv("VODA_JOB_ID", "a")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.delenv("VODA_API_URL", raising=False)
    monkeypatch.setattr(voda.report, "_reporter", voda.report._Reporter())
    monkeypatch.setattr(atexit, "register", lambda *_: None)

    def read() -> list[dict[str, str]]:
        assert voda.report.flush(10)
        file = tmp_path / "a.csv"
        return list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []

    return read


def a_callback(name: str, monkeypatch: pytest.MonkeyPatch, framework: str, **inside: object) -> Any:
    """Return the callback of a module, whose framework is replaced by a stand-in."""
    stand_in = types.ModuleType(framework)
    vars(stand_in).update(inside)
    monkeypatch.setitem(sys.modules, framework, stand_in)
    if "." in framework:
        monkeypatch.setitem(sys.modules, framework.partition(".")[0], types.ModuleType("parent"))
    module = importlib.import_module(f"voda.callbacks.{name}")
    module._callback_class.cache_clear()
    made = module.VodaCallback
    assert issubclass(made, Base)
    return made()


def a_keras_callback(monkeypatch: pytest.MonkeyPatch, *, steps: int | None = 4, stops: bool = False) -> Any:
    callback = a_callback("keras", monkeypatch, "keras", callbacks=types.SimpleNamespace(Callback=Base))
    callback.params, callback.model = {"steps": steps}, types.SimpleNamespace(stop_training=stops)
    return callback


def test_keras_when_an_epoch_ends_is_reported(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = a_keras_callback(monkeypatch)
    callback.on_epoch_begin(2)
    callback.on_train_batch_end(3)
    callback.on_epoch_end(2, {"loss": 0.5, "name": "x"})
    callback.on_train_end()
    (row,) = rows()
    assert (row["epoch"], row["workers"], row["loss"]) == ("2", "4", "0.5")
    assert float(row["epoch_time_sec"]) >= 0
    assert "name" not in row


@pytest.mark.parametrize(("steps", "stops"), [(4, True), (None, True)])
def test_keras_when_an_epoch_is_cut_short_has_no_row_for_it(
    rows: Any, monkeypatch: pytest.MonkeyPatch, steps: int | None, stops: bool
) -> None:
    callback = a_keras_callback(monkeypatch, steps=steps, stops=stops)
    callback.on_epoch_begin(2)
    callback.on_train_batch_end(1)
    callback.on_epoch_end(2, {"loss": 0.5})
    assert rows() == []


def test_keras_when_on_another_rank_reports_nothing(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    callback = a_keras_callback(monkeypatch)
    callback.on_train_batch_end(3)
    callback.on_epoch_end(2, {"loss": 0.5})
    assert rows() == []


def test_lightning_when_an_epoch_ends_is_reported_by_rank_0(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = a_callback("lightning", monkeypatch, "lightning.pytorch", Callback=Base)
    fields = {"current_epoch": 4, "world_size": 3, "num_training_batches": 1, "callback_metrics": {"val_loss": 0.25}}
    callback.on_train_epoch_start(None, None)
    callback.on_train_batch_end(types.SimpleNamespace(is_global_zero=False, **fields), None, None, None, 0)
    callback.on_train_epoch_end(types.SimpleNamespace(is_global_zero=False, **fields), None)
    callback.on_train_epoch_end(types.SimpleNamespace(is_global_zero=True, **fields), None)
    (row,) = rows()
    assert (row["epoch"], row["workers"], row["val_loss"], row["global_epochs"]) == ("4", "3", "0.25", "5")


def test_transformers_when_an_epoch_ends_is_reported(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer_state = types.SimpleNamespace(load_from_json=None)
    stand_ins = {"TrainerCallback": Base, "TrainerState": trainer_state}
    callback = a_callback("transformers", monkeypatch, "transformers", **stand_ins)
    args = types.SimpleNamespace(world_size=2)
    state = types.SimpleNamespace(
        epoch=1.0, is_world_process_zero=True, log_history=[{"loss": 0.5, "epoch": 1, "step": 9}]
    )
    callback.on_epoch_begin(args, state, None, model=None)
    state.epoch = 2.0000000001
    callback.on_epoch_end(args, state, None, model=None)
    (row,) = rows()
    assert (row["epoch"], row["workers"], row["loss"]) == ("1", "2", "0.5")
    assert "step" not in row


@pytest.fixture
def sent(rows: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return what goes out."""
    found: list[dict[str, Any]] = []

    def deliver(_file: object, body: dict[str, Any]) -> bool:
        found.append(body)
        return True

    monkeypatch.setattr(voda.report._File, "deliver", deliver)
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    found = types.SimpleNamespace(now=1000.0)
    monkeypatch.setattr(_distributed, "time", types.SimpleNamespace(perf_counter=lambda: found.now))
    return found


def test_share_of_the_epoch_and_throughput_are_due_soon_after_each_change_and_every_minute(
    sent: list[dict[str, Any]], clock: types.SimpleNamespace
) -> None:
    reporter = EpochReporter()
    reporter.begin_epoch()
    for step in range(1, 101):
        clock.now += 2.0 if step <= 60 else 1.0
        if reporter.count_step(2 if step <= 60 else 4, 16 if step <= 60 else 32):
            reporter.report_share(3 + step / 100, steps=100)
    reporter.report_epoch(4, 4, {}, steps=100)
    assert voda.report.flush(10)
    names = ("epoch", "workers", "samples_per_s", "epoch_samples")
    assert [tuple(one.get(name) for name in names) for one in sent] == [
        (3.06, 2, 8.0, 1600.0),
        (3.36, 2, 8.0, 1600.0),
        (3.71, 4, 32.0, 3200.0),
        (4.0, 4, 32.0, 3200.0),
    ]
    assert not any("epoch_time_s" in one for one in sent), "an epoch into which a change fell has no time"


def test_whole_epoch_has_its_own_throughput(sent: list[dict[str, Any]], clock: types.SimpleNamespace) -> None:
    reporter = EpochReporter()
    reporter.begin_epoch()
    for _ in range(4):
        clock.now += 0.5
        assert not reporter.count_step(1, 10)
    reporter.report_epoch(1, 1, {}, steps=4)
    assert voda.report.flush(10)
    assert [(one["epoch_time_s"], one["samples_per_s"], one["epoch_samples"]) for one in sent] == [(2.0, 20.0, 40.0)]


def test_share_is_due_a_minute_after_the_end_of_an_epoch_that_was_timed(
    sent: list[dict[str, Any]], clock: types.SimpleNamespace
) -> None:
    reporter = EpochReporter()
    for epoch in range(2):
        reporter.begin_epoch()
        for step in range(1, 101):
            clock.now += 0.5 if epoch == 0 else 1.0
            if reporter.count_step(1, 10):
                reporter.report_share(epoch + step / 100, steps=100)
        reporter.report_epoch(epoch + 1, 1, {}, steps=100)
    assert voda.report.flush(10)
    assert [one["epoch"] for one in sent] == [0.21, 1.0, 1.6, 2.0]


def test_keras_within_an_epoch_tells_its_share_and_the_seconds_of_a_step(
    sent: list[dict[str, Any]], clock: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = a_keras_callback(monkeypatch, steps=40)
    callback.on_epoch_begin(2)
    for batch in range(40):
        clock.now += 1.0
        callback.on_train_batch_end(batch)
    assert voda.report.flush(10)
    assert [(one["epoch"], one["step_time_s"]) for one in sent] == [(2.275, 1.0)]
    assert "samples_per_s" not in sent[0]


def test_samples_of_a_batch_are_the_length_of_its_first_tensor() -> None:
    tensor = types.SimpleNamespace(shape=(32, 3))
    nested: object = tensor
    for _ in range(9):
        nested = [nested]
    assert [samples_in(batch) for batch in (tensor, [tensor, 1], {"x": (tensor,)})] == [32, 32, 32]
    assert [samples_in(batch) for batch in (None, [], {}, "text", types.SimpleNamespace(shape=()), nested)] == [
        None
    ] * 6


sizes = st.integers(1, 8)


@given(samples=st.integers(1, 500), then=sizes, now=sizes, data=st.data())
def test_place_in_data_at_another_size_is_less_than_a_step_before_what_was_trained(
    samples: int, then: int, now: int, data: st.DataObject
) -> None:
    before, after = (StepCounts(size * 5, math.ceil(samples / (size * 5))) for size in (then, now))
    step = data.draw(st.integers(0, 3 * before.per_epoch))
    trained, place = (
        count // each.per_epoch * samples + count % each.per_epoch * each.samples
        for count, each in ((step, before), (place_in_data(step, before, after), after))
    )
    assert trained - after.samples < place <= trained


def test_place_in_data_without_a_length_counts_samples() -> None:
    assert place_in_data(7, StepCounts(5, 0), StepCounts(10, 0)) == 3


@pytest.mark.parametrize("name", NAMES)
def test_framework_when_its_callback_is_not_used_is_not_imported(name: str) -> None:
    code = f"import sys, voda.callbacks.{name}; sys.exit(bool({set(NAMES)} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_framework_when_missing_is_named(name: str) -> None:
    module = importlib.import_module(f"voda.callbacks.{name}")
    with pytest.raises(AttributeError, match="nothing"):
        _ = module.nothing
