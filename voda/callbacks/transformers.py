"""The callback for Hugging Face's Trainer: `Trainer(..., callbacks=[VodaCallback()])`.

Rule: epochs count from the job's beginning; `train(resume_from_checkpoint=True)` restores the Trainer's own count.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

from voda.callbacks._distributed import EpochReporter


def __getattr__(name: str) -> type:
    """Make the class on first use, because its base is the Trainer's."""
    if name != "VodaCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _callback_class()


@lru_cache
def _callback_class() -> type:
    class VodaCallback(EpochReporter, importlib.import_module("transformers").TrainerCallback):  # type: ignore[misc]  # the base is known only now
        """Reports every epoch: seconds, workers and what was logged last. Rank 0 alone reports."""

        def on_epoch_begin(self, args: object, state: Any, control: object, **_others: object) -> None:
            """Begin to time, unless a checkpoint was made within this epoch: then its time would be too short."""
            if float(state.epoch or 0.0).is_integer():
                self.begin_epoch()

        def on_epoch_end(self, args: Any, state: Any, control: object, **_others: object) -> None:
            if state.is_world_process_zero:
                logged = state.log_history[-1] if state.log_history else {}
                metrics = {name: value for name, value in logged.items() if name not in {"epoch", "step"}}
                self.report_epoch(round(state.epoch, 6), args.world_size, metrics)

    return VodaCallback
