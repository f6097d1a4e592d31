"""The callback for Hugging Face's Trainer: `Trainer(..., callbacks=[VodaCallback()])`.

The Trainer finds its place in the data by its count of steps, whose samples are other ones at another number of
workers. Rule: `train(resume_from_checkpoint=...)` goes on behind the samples that were trained, less than a step
before their end and never after it, or ends with an error. `global_step` stays the number of steps ever made.
"""

from __future__ import annotations

import importlib
import math
from functools import lru_cache
from typing import Any, NamedTuple

from voda.callbacks._distributed import EpochReporter

_NAME = "VodaCallback"
"""In a checkpoint's trainer_state.json, among what callbacks keep there."""


class StepCounts(NamedTuple):
    """What a step is at one number of workers; all zero where nothing is known."""

    samples: int
    """Of all workers."""
    per_epoch: int
    """0 = data without a length, which are one epoch without end."""


def place_in_data(step: int, then: StepCounts, now: StepCounts) -> int:
    """Return the steps of today's size that end no later in the data than `step` of another size."""
    epochs, steps = divmod(step, then.per_epoch) if then.per_epoch else (0, step)
    return epochs * now.per_epoch + steps * then.samples // now.samples


def __getattr__(name: str) -> type:
    """Make the class on first use, because its base is the Trainer's."""
    if name != _NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _callback_class()


@lru_cache
def _callback_class() -> type:
    trainer_state = importlib.import_module("transformers").TrainerState
    read_state = trainer_state.load_from_json

    class VodaCallback(EpochReporter, importlib.import_module("transformers").TrainerCallback):  # type: ignore[misc]  # the base is known only now
        """Reports every epoch: seconds, workers and what was logged last. Rank 0 alone reports."""

        _steps_per_epoch = 0

        def on_init_end(self, args: Any, state: object, control: object, **_others: object) -> None:
            """Have checkpoints read for this size: at the next hook the Trainer has chosen its place in the data."""
            trainer_state.load_from_json = staticmethod(lambda path: _placed(read_state(path), args))

        def on_train_begin(self, args: Any, state: Any, control: object, **others: Any) -> None:
            """Check the place in the data, and keep what a start at another size needs to find it."""
            data, scheduler = others["train_dataloader"], others["lr_scheduler"]
            batches = _length(data)
            self._steps_per_epoch = math.ceil(batches / args.gradient_accumulation_steps)
            ahead = getattr(state, "steps_ahead", 0)
            place = state.global_step - ahead
            if batches and state.global_step and not args.ignore_data_skip:
                _check(place, state.epoch * self._steps_per_epoch)
            if hasattr(scheduler, "lr_lambdas") and scheduler.last_epoch != place:
                scheduler.last_epoch = place - 1
                scheduler.step()
            kept = {
                "samples_per_step": _samples_per_step(args),
                "steps_per_epoch": self._steps_per_epoch,
                "samples_per_epoch": _length(getattr(data, "dataset", None)),
                "steps_ahead": ahead,
            }
            state.stateful_callbacks[_NAME] = {"args": {}, "attributes": kept}

        def on_epoch_begin(self, args: object, state: object, control: object, **_others: object) -> None:
            self.begin_epoch()

        def on_step_end(self, args: Any, state: Any, control: object, **_others: object) -> None:
            if self.count_step(args.world_size, _samples_per_step(args)) and state.is_world_process_zero:
                self.report_share(state.epoch, steps=self._steps_per_epoch)

        def on_epoch_end(self, args: Any, state: Any, control: object, **_others: object) -> None:
            if state.is_world_process_zero:
                logged = state.log_history[-1] if state.log_history else {}
                metrics = {name: value for name, value in logged.items() if name not in {"epoch", "step"}}
                self.report_epoch(round(state.epoch, 6), args.world_size, metrics, steps=self._steps_per_epoch)

    return VodaCallback


def _placed(state: Any, args: Any) -> Any:
    """Return a checkpoint's state as a Trainer of this size is to read it."""
    kept = state.stateful_callbacks.get(_NAME, {}).get("attributes")
    if not kept:
        return state
    ever = state.global_step
    state.global_step -= kept["steps_ahead"]
    now = _steps_now(kept["samples_per_epoch"], args)
    if kept["samples_per_step"] != now.samples:
        then = StepCounts(kept["samples_per_step"], kept["steps_per_epoch"])
        state.global_step = place_in_data(state.global_step, then, now)
        state.epoch = state.global_step / now.per_epoch if now.per_epoch else state.epoch
    state.steps_ahead = ever - state.global_step
    begin = state.init_training_references

    def begin_ahead(*given: object) -> None:
        """Count on from all steps ever made: the checkpoint of the highest count is taken for the last one."""
        begin(*given)
        state.global_step += state.steps_ahead
        state.max_steps += state.steps_ahead

    # The Trainer calls it once it has chosen its place in the data.
    state.init_training_references = begin_ahead
    return state


def _check(place: int, due: float) -> None:
    if abs(place - due) >= 1:
        raise RuntimeError(
            f"the checkpoint's place in the data is step {due:.1f} at this number of workers, and the Trainer would go"
            f" on from step {place}: pass VodaCallback() to Trainer(callbacks=[...]) from the first start on, or set"
            " gradient_accumulation_steps so that a step of all workers has the same number of samples at every size"
        )


def _samples_per_step(args: Any) -> int:
    return int(args.train_batch_size * args.world_size * args.gradient_accumulation_steps)


def _steps_now(samples: int, args: Any) -> StepCounts:
    """Return the steps that the Trainer will make of these samples; 0 samples = data without a length."""
    batches = samples / (args.train_batch_size * args.world_size)
    whole = math.floor(batches) if args.dataloader_drop_last else math.ceil(batches)
    return StepCounts(_samples_per_step(args), math.ceil(whole / args.gradient_accumulation_steps))


def _length(data: Any) -> int:
    """Return 0 where data have no length."""
    try:
        return len(data)
    except TypeError:
        return 0
