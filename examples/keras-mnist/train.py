"""Keras MNIST, data-parallel over MPI without Horovod, and elastic by checkpoints. See README.md."""

import os
import signal
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import tensorflow as tf
from mpi4py import MPI

from voda.callbacks.keras import VodaCallback

WORLD = MPI.COMM_WORLD
BATCH = 512
"""Over all ranks: the size of the job does not change what is learned."""
EPOCHS = int(os.environ.get("EPOCHS", "12"))
FOLDER = Path(os.environ.get("VODA_JOB_DIR", "."))
WEIGHTS, DONE = FOLDER / "model.weights.h5", FOLDER / "epochs_done"


class SharedGradients(keras.optimizers.Adam):
    """What hvd.DistributedOptimizer was: every rank applies the mean of all ranks' gradients."""

    def apply(self, grads, trainable_variables=None):
        """Apply the mean."""
        # One call for all of them: calls of their own could come in another order on another rank.
        shared = tf.py_function(mean, grads, [grad.dtype for grad in grads])
        for grad, own in zip(shared, grads, strict=True):
            grad.set_shape(own.shape)
        return super().apply(shared, trainable_variables)


def mean(*gradients):
    """Return the means of the gradients over the ranks."""
    flat = np.concatenate([gradient.numpy().ravel() for gradient in gradients])
    WORLD.Allreduce(MPI.IN_PLACE, flat)
    ends = np.cumsum([int(tf.size(gradient)) for gradient in gradients])
    parts = np.split(flat / WORLD.size, ends[:-1])
    return [part.reshape(gradient.shape) for part, gradient in zip(parts, gradients, strict=True)]


class Checkpoint(keras.callbacks.Callback):
    """Writes whole epochs on rank 0; on SIGTERM ends all ranks after the same step, without losing whole epochs."""

    def __init__(self):
        super().__init__()
        self.is_told = False
        signal.signal(signal.SIGTERM, self.be_told)

    def be_told(self, *_):
        """Remember that it is to end."""
        self.is_told = True

    def on_train_batch_end(self, batch, logs=None):
        """Stop where any rank was told."""
        if WORLD.allreduce(self.is_told, MPI.LOR):
            # sys.exit runs MPI_Finalize. Not with 0: the training is not done, and a Job would take it for that.
            raise SystemExit(143)

    def on_epoch_end(self, epoch, logs=None):
        """Save the epoch; the count is written last, so that it never promises too much."""
        if WORLD.rank == 0:
            draft = FOLDER / "draft.weights.h5"
            self.model.save_weights(draft)
            draft.replace(WEIGHTS)
            DONE.with_suffix(".new").write_text(str(epoch + 1))
            DONE.with_suffix(".new").replace(DONE)


def main():
    """Train from where the last start ended."""
    # Rank 0 alone fetches the images.
    data = keras.datasets.mnist.load_data() if WORLD.rank == 0 else None
    (images, labels), (test_images, test_labels) = WORLD.bcast(data)
    images, labels = images[WORLD.rank :: WORLD.size, ..., None] / 255.0, labels[WORLD.rank :: WORLD.size]
    # All ranks must take equally many steps, or one would wait for the others for ever.
    even = 60_000 // WORLD.size
    images, labels = images[:even], labels[:even]
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=SharedGradients(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    done = WORLD.bcast(int(DONE.read_text()) if DONE.exists() else 0)
    if done:
        # Before its first step the optimizer has nothing that its saved state could be loaded into.
        model.optimizer.build(model.trainable_variables)
        model.load_weights(WEIGHTS)
    model.fit(
        images,
        labels,
        batch_size=BATCH // WORLD.size,
        epochs=EPOCHS,
        initial_epoch=done,
        verbose=2 if WORLD.rank == 0 else 0,
        callbacks=[Checkpoint(), VodaCallback()],
    )
    if WORLD.rank == 0:
        print("accuracy", model.evaluate(test_images[..., None] / 255.0, test_labels, verbose=0)[1])


if __name__ == "__main__":
    main()
