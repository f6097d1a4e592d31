#!/bin/sh
# PyTorch Lightning reads a DataLoader without shuffle in order with one process, and shuffled with two.
#
# Versions: lightning 2.6.6, torch 2.13.0, Python 3.11.
# Expected: DataLoader(data) without shuffle=True is read in order, by however many processes.
# Seen: one process reads 0 1 2 3 ...; with two, rank 0 reads neither 0 2 4 ... nor any other part that is in order.
# It matters because the order of the data, and so the result, depends on the number of processes that a job has got.
. "$(dirname "$0")/with-packages.sh"
with_packages lightning==2.6.6 torch==2.13.0

cat >train.py <<'END'
import sys
import lightning.pytorch as pl, torch

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []
    def training_step(self, batch, index):
        self.seen.append(int(batch[0]))
        return self.layer(batch[0]).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

size, model = int(sys.argv[1]), Model()
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(16.0).unsqueeze(1)))
trainer = pl.Trainer(
    accelerator="cpu", devices=size, strategy="ddp" if size > 1 else "auto", max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False,
)
trainer.fit(model, data)
if trainer.is_global_zero:
    print("in order" if model.seen == sorted(model.seen) else "shuffled", len(model.seen))
END
expect "one process" "in order 16" "$(timeout 300 python train.py 1 2>err | tail -1)"
expect "rank 0 of two" "shuffled 8" "$(timeout 300 torchrun --standalone --nproc-per-node=2 train.py 2 2>err | tail -1)"
