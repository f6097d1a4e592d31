"""Lightning, stopped by SIGTERM at a step and started again at another size: 120 samples, 5 in a batch."""

# mypy: ignore-errors

import os
import signal
import warnings

import lightning.pytorch as pl
import ranks
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

torch.set_num_threads(1)
warnings.simplefilter("ignore")


class Model(pl.LightningModule):
    def __init__(self, folder, stop):
        super().__init__()
        self.layer, self.folder, self.stop = torch.nn.Linear(1, 1), folder, stop

    def training_step(self, batch, batch_idx):
        ranks.note(self.folder, batch[0])
        if self.global_step + 1 == self.stop:
            os.kill(os.getpid(), signal.SIGTERM)
        return (self.layer(batch[0] / 1000) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def train(folder, stop, **options):
    from voda.callbacks.lightning import VodaCallback

    size = int(os.environ["WORLD_SIZE"])  # noqa: TID251 - no part of voda
    last = ModelCheckpoint(folder, save_last=True, save_on_exception=True)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    strategy = "ddp" if size > 1 else "auto"
    made = pl.Trainer(
        accelerator="cpu",
        devices=size,
        strategy=strategy,
        max_epochs=2,
        callbacks=[VodaCallback(), last],
        **quiet,
        **options,
    )
    data = torch.utils.data.TensorDataset(torch.arange(120.0).unsqueeze(1))
    made.fit(Model(folder, stop), torch.utils.data.DataLoader(data, 5), ckpt_path="last")


def train_a_few_steps(folder, stop):
    train(folder, stop, max_steps=30)


if __name__ == "__main__":
    ranks.train_in_turn("grown", [(1, 37), (2, None)], train)
    ranks.train_in_turn("shrunk", [(2, 15), (1, None)], train)
    ranks.train_in_turn("grown-at-border", [(1, 24), (2, None)], train)
    ranks.train_in_turn("same", [(1, 31), (1, None)], train)
    ranks.train_in_turn("few-steps", [(1, None)], train_a_few_steps)
