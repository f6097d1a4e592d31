"""Hugging Face's Trainer, stopped at a step and started again at another size: 120 samples, 5 in a batch."""

# mypy: ignore-errors

import ranks
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

torch.set_num_threads(1)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, index):
        return {"x": torch.tensor([float(index)])}


class Model(torch.nn.Module):
    def __init__(self, folder):
        super().__init__()
        self.layer, self.folder = torch.nn.Linear(1, 1), folder

    def forward(self, x):
        ranks.note(self.folder, x)
        return {"loss": (self.layer(x / 1000) ** 2).mean()}


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            control.should_save = control.should_training_stop = True


def trainer(folder, stop, **options):
    from voda.callbacks.transformers import VodaCallback

    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    args = TrainingArguments(str(folder), per_device_train_batch_size=5, num_train_epochs=2, **quiet, **options)
    callbacks = [StopAt(stop)]
    is_late = stop == "late"
    made = Trainer(
        Model(folder), args, train_dataset=Data(), callbacks=callbacks if is_late else [VodaCallback(), *callbacks]
    )
    if is_late:
        made.add_callback(VodaCallback())
    return made


def train(folder, stop, **options):
    made = trainer(folder, stop, **options)
    made.train(resume_from_checkpoint=get_last_checkpoint(str(folder)))
    rate = made.lr_scheduler.get_last_lr()[0]
    assert stop or rate == 0, f"the schedule ends at a learning rate of {rate}"


def train_a_few_steps(folder, stop):
    train(folder, stop, max_steps=30)


if __name__ == "__main__":
    ranks.train_in_turn("grown", [(1, 37), (2, None)], train)
    ranks.train_in_turn("grown-far", [(1, 20), (3, None)], train)
    ranks.train_in_turn("odd", [(2, 4), (3, None)], train)
    ranks.train_in_turn("shrunk-at-border", [(3, 8), (1, None)], train)
    ranks.train_in_turn("shrunk", [(2, 15), (1, None)], train)
    ranks.train_in_turn("often", [(1, 7), (2, 13), (3, 15), (1, 30), (2, None)], train)
    ranks.train_in_turn("unread", [(1, 20), (2, "late")], train)
    ranks.train_in_turn("few-steps", [(1, None)], train_a_few_steps)
