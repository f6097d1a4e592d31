#!/bin/sh
# The Trainer of transformers, resumed with more processes, ends at once with 0 and has trained nothing.
#
# Versions: transformers 5.24.0, accelerate 1.15.0, torch 2.13.0, Python 3.11.
# Expected: a run of 2 epochs that was stopped at epoch 0.83 with one process goes on from there with three.
# Seen: the checkpoint holds a count of steps, 20. One process makes 24 steps an epoch, three make 8, so that 20 is behind
# the end of both epochs: train() returns, global_step 20 of 16, epoch 0.83. No warning, exit status 0.
# (The other way, 3 to 1 at epoch 1.0, it goes on from epoch 0.33 and trains the samples once more.)
# It matters because a job whose size changes counts as done; a fifth of the first epoch and all of the second are left out.
. "$(dirname "$0")/with-packages.sh"
with_packages transformers==5.24.0 accelerate==1.15.0 torch==2.13.0

cat >train.py <<'END'
import sys
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 120
    def __getitem__(self, index):
        return {"x": torch.tensor([float(index)])}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def forward(self, x):
        return {"loss": (self.layer(x / 100) ** 2).mean()}

class Count(TrainerCallback):
    steps = 0
    def on_step_end(self, args, state, control, **_):
        self.steps += 1
        if sys.argv[1] == "stop" and state.global_step == 20:
            control.should_save = control.should_training_stop = True

args = TrainingArguments(
    "out", per_device_train_batch_size=5, num_train_epochs=2, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True
)
count = Count()
trainer = Trainer(Model(), args, train_dataset=Data(), callbacks=[count])
trainer.train(resume_from_checkpoint=sys.argv[1] == "resume")
if trainer.is_world_process_zero():
    print(f"made {count.steps} steps, now at step {trainer.state.global_step} of {trainer.state.max_steps}")
END
expect "stopped" "made 20 steps, now at step 20 of 48" \
    "$(timeout 300 torchrun --standalone --nproc-per-node=1 train.py stop 2>err | tail -1)"
status=0
timeout 300 torchrun --standalone --nproc-per-node=3 train.py resume >out.txt 2>err || status=$?
expect "exit status of the resumed run" 0 "$status"
expect "resumed" "made 0 steps, now at step 20 of 16" "$(grep '^made' out.txt)"
