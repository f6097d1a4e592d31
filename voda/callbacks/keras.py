"""The callback for Keras: `model.fit(..., callbacks=[VodaCallback()], initial_epoch=...)`.

Rule: epochs count from the job's beginning, so a restarted program tells `fit` its `initial_epoch`, as Keras's own
BackupAndRestore does; of an epoch in which training stopped, the part that was done is reported.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

from voda.callbacks._distributed import EpochReporter, rank, world_size


def __getattr__(name: str) -> type:
    """Make the class on first use, because its base is Keras's."""
    if name != "VodaCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _callback_class()


def _keras() -> Any:
    try:
        return importlib.import_module("keras")
    except ImportError:
        return importlib.import_module("tensorflow").keras


@lru_cache
def _callback_class() -> type:
    class VodaCallback(EpochReporter, _keras().callbacks.Callback):  # type: ignore[misc]  # the base is known only now
        """Reports every epoch: seconds, workers and the logs that are numbers. Rank 0 alone reports."""

        _batches = 0
        _epoch = 0

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            self._epoch = epoch
            self.begin_epoch()

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            self._batches = batch + 1
            # Keras says no batch size: the seconds of a step are what is known.
            steps = self.params.get("steps")
            if self.count_step(world_size()) and steps and rank() == 0:
                self.report_share(self._epoch + self._batches / steps, steps=steps)

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            # None where the data have no length: whether the epoch was cut short is then known only if nobody stopped.
            steps = self.params.get("steps")
            if rank() == 0 and (steps or not self.model.stop_training):
                done = self._batches / steps if steps else 1
                self.report_epoch(epoch + done, world_size(), logs, steps=0)

    return VodaCallback
