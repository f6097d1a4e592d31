"""The callback for Keras: `model.fit(..., callbacks=[VodaCallback()], initial_epoch=...)`.

Rule: epochs count from the job's beginning, so a restarted program must tell `fit` its `initial_epoch`.
"""

import importlib
from functools import cache
from typing import Any

from voda.callbacks._distributed import EpochTimer, numbers, rank, world_size
from voda.report import flush, report


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


@cache
def _callback_class() -> type:
    class VodaCallback(_keras().callbacks.Callback):  # type: ignore[misc]  # the base is known only now
        """Reports every epoch: seconds, workers and the logs that are numbers. Rank 0 alone reports."""

        def __init__(self) -> None:
            super().__init__()
            self._timer = EpochTimer()

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            """Begin to time."""
            self._timer.begin()

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            """Report the epoch; `epoch` counts from 0."""
            if rank() == 0:
                report(epoch + 1, self._timer.end(), world_size(), numbers(logs))

        def on_train_end(self, logs: object = None) -> None:
            """Wait a moment for the last report."""
            flush()

    return VodaCallback
