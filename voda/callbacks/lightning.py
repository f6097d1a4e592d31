"""The callback for PyTorch Lightning: `Trainer(callbacks=[VodaCallback()])`.

Lightning goes on within an epoch by its count of batches, but reads the data from their beginning. Rule: epochs count
from the job's beginning; one that a checkpoint was made within begins anew, so that no sample of it is left out.
"""

from __future__ import annotations

import importlib
import math
from functools import lru_cache
from typing import Any

from voda.callbacks._distributed import EpochReporter, samples_in

_SIZE = "voda_world_size"
"""In a checkpoint."""
_ENDED_BY_SIGTERM = 143


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

        _batches = 0

        def on_save_checkpoint(self, trainer: Any, pl_module: object, checkpoint: dict[str, Any]) -> None:
            checkpoint[_SIZE] = trainer.world_size

        def on_load_checkpoint(self, trainer: Any, pl_module: object, checkpoint: dict[str, Any]) -> None:
            # Loaders that know their place in the data know it for their own number of workers.
            fit = checkpoint.get("loops", {}).get("fit_loop")
            if fit and not ("combined_loader" in fit["state_dict"] and checkpoint.get(_SIZE) == trainer.world_size):
                begin_epoch_anew(fit)

        def on_exception(self, trainer: object, pl_module: object, exception: BaseException) -> None:
            """End with the status of a program that was told to end, where Lightning's own is that of success."""
            if type(exception).__name__ == "SIGTERMException" and isinstance(exception, SystemExit):
                exception.code = _ENDED_BY_SIGTERM

        def on_train_epoch_start(self, trainer: Any, pl_module: object) -> None:
            self.begin_epoch()

        def on_train_batch_end(
            self, trainer: Any, pl_module: object, outputs: object, batch: object, batch_idx: int
        ) -> None:
            self._batches = batch_idx + 1
            samples, whole = samples_in(batch), trainer.num_training_batches
            is_due = self.count_step(trainer.world_size, samples and samples * trainer.world_size)
            if is_due and trainer.is_global_zero and math.isfinite(whole):
                self.report_share(trainer.current_epoch + self._batches / whole, steps=whole)

        def on_train_epoch_end(self, trainer: Any, pl_module: object) -> None:
            whole = trainer.num_training_batches
            done = self._batches / whole if math.isfinite(whole) else float(trainer.is_last_batch)
            if trainer.is_global_zero:
                epochs, metrics = trainer.current_epoch + done, trainer.callback_metrics
                self.report_epoch(epochs, trainer.world_size, metrics, steps=whole if math.isfinite(whole) else 0)

    return VodaCallback


def begin_epoch_anew(fit: dict[str, Any]) -> None:
    """Set a checkpoint's counts to the end of the epochs done, where it was made within the next one."""
    epochs, batches = fit["epoch_progress"], fit["epoch_loop.batch_progress"]
    if epochs["current"]["processed"] == epochs["current"]["started"]:
        return
    done = epochs["current"]["processed"] + int(batches["is_last_batch"])
    for count in (*epochs.values(), batches["current"]):
        count.update(dict.fromkeys(count, 0 if count is batches["current"] else done))
    batches["is_last_batch"] = False
    fit["state_dict"].pop("combined_loader", None)
