"""Keras, stopped within an epoch, at its end, or killed: 120 samples, 10 in a batch, with a length or without."""

# mypy: ignore-errors

import os
import signal

import keras
import numpy as np
import ranks
import torch

torch.set_num_threads(1)


class Data(keras.utils.PyDataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return np.full((10, 1), index / 100), np.zeros((10, 1))


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([(np.zeros(1, dtype="float32"), np.zeros(1, dtype="float32")) for _ in range(12)])


class StopAt(keras.callbacks.Callback):
    def __init__(self, stop, end):
        super().__init__()
        self.left, self.end = stop, end

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0 and self.end == "stop":
            self.model.stop_training = True
        elif self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder, stop, data_of=Data):
    from voda.callbacks.keras import VodaCallback

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callbacks = [VodaCallback(), keras.callbacks.BackupAndRestore(str(folder / "backup")), StopAt(*(stop or (0, "")))]
    model.fit(data_of(), epochs=3, verbose=0, callbacks=callbacks)


def train_without_length(folder, stop):
    train(folder, stop, lambda: torch.utils.data.DataLoader(Endless()))


if __name__ == "__main__":
    ranks.train_in_turn("stopped", [(1, (18, "stop"))], train)
    ranks.train_in_turn("stopped-at-border", [(1, (24, "stop"))], train)
    ranks.train_in_turn("killed", [(1, (18, "kill")), (1, None)], train)
    ranks.train_in_turn("without-length", [(1, None)], train_without_length)
    ranks.train_in_turn("without-length-stopped", [(1, (18, "stop"))], train_without_length)
