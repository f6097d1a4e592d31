"""The callback for PyTorch Lightning: `Trainer(callbacks=[VodaCallback()])`.

Rule: epochs count from the job's beginning; Lightning restores its own count from a checkpoint.
"""

import importlib
from functools import cache
from typing import Any

from voda.callbacks._distributed import EpochTimer, numbers
from voda.report import flush, report


def __getattr__(name: str) -> type:
    """Make the class on first use, because its base is Lightning's."""
    if name != "VodaCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _callback_class()


def _lightning() -> Any:
    try:
        return importlib.import_module("lightning.pytorch")
    except ImportError:
        return importlib.import_module("pytorch_lightning")


@cache
def _callback_class() -> type:
    class VodaCallback(_lightning().Callback):  # type: ignore[misc]  # the base is known only now
        """Reports every epoch: seconds, workers and the logged metrics. Rank 0 alone reports."""

        def __init__(self) -> None:
            super().__init__()
            self._timer = EpochTimer()

        def on_train_epoch_start(self, trainer: Any, pl_module: object) -> None:
            """Begin to time."""
            self._timer.begin()

        def on_train_epoch_end(self, trainer: Any, pl_module: object) -> None:
            """Report the epoch; `current_epoch` counts from 0."""
            if trainer.is_global_zero:
                metrics = numbers(trainer.callback_metrics)
                report(trainer.current_epoch + 1, self._timer.end(), trainer.world_size, metrics)

        def on_train_end(self, trainer: object, pl_module: object) -> None:
            """Wait a moment for the last report."""
            flush()

    return VodaCallback
