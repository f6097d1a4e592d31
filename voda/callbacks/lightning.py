"""The callback for PyTorch Lightning: `Trainer(callbacks=[VodaCallback()])`.

Rule: epochs count from the job's beginning; Lightning restores its own count from a checkpoint.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

from voda.callbacks._distributed import EpochReporter


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


@lru_cache
def _callback_class() -> type:
    class VodaCallback(EpochReporter, _lightning().Callback):  # type: ignore[misc]  # the base is known only now
        """Reports every epoch: seconds, workers and the logged metrics. Rank 0 alone reports."""

        def on_train_epoch_start(self, trainer: Any, pl_module: object) -> None:
            self.begin_epoch()

        def on_train_epoch_end(self, trainer: Any, pl_module: object) -> None:
            if trainer.is_global_zero:
                self.report_epoch(trainer.current_epoch + 1, trainer.world_size, trainer.callback_metrics)

    return VodaCallback
