#!/bin/sh
# PyTorch Lightning that gets SIGTERM saves no checkpoint, and the program ends with 0, the status of success.
#
# Versions: lightning 2.6.6, torch 2.13.0, Python 3.11.
# Expected: a checkpoint, or at least a status that says that training was broken off (143).
# Seen: training ends after the batch at hand; status 0; no .ckpt file that was not there before.
# It matters because whoever restarts what failed takes the job for done. What helps: OnExceptionCheckpoint, or
# ModelCheckpoint(save_on_exception=True), and a status of one's own: SIGTERMException is a SystemExit without a code.
. "$(dirname "$0")/with-packages.sh"
with_packages lightning==2.6.6 torch==2.13.0

cat >train.py <<'END'
import os, signal
import lightning.pytorch as pl, torch

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, index):
        if index == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        print("batch", index, flush=True)
        return self.layer(batch[0]).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(10, 1)))
pl.Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_progress_bar=False).fit(Model(), data)
print("trained to the end")
END
status=0
timeout 300 python train.py >out 2>err || status=$?
expect "exit status" 0 "$status"
expect "batches trained, of 10" 3 "$(grep -c batch out)"
expect "checkpoints" 0 "$(find . -name '*.ckpt' -not -path './venv/*' | wc -l | tr -d ' ')"
