"""Train a small network on scikit-learn's digits, data-parallel over MPI, so that it can be resized at any moment.

Three things make it elastic, and they are all there is to it:
1. `voda run` sends SIGTERM: all ranks stop at the same step, rank 0 writes a checkpoint, and the program ends with 143
   (128 + SIGTERM): 0 would say that all is done, which a Job of Kubernetes believes of a worker that was evicted.
2. The checkpoint lies in VODA_JOB_DIR and is written whole or not at all. A start at another size goes on from it.
3. The batch of a step is the same whatever the number of ranks; each rank takes its share. So the result is the same
   too, up to rounding.
"""

import argparse
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

# One rank, one core: ranks must not fight for the others' cores. Read by numpy as it is imported.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402 - after the lines above
from mpi4py import MPI  # noqa: E402

from voda.report import report  # noqa: E402

BLOCKS, BLOCK = 24, 480
"""A step's batch is so many blocks of so many images; the ranks share the blocks."""
BATCH = BLOCKS * BLOCK
HIDDEN = 128
RATE, MOMENTUM = 0.2, 0.9
NOISE = 2.0
"""Standard deviation of what is added to the pixels, whose values are 0 to 16: every pass sees new images."""


@dataclass
class Progress:
    """What a checkpoint holds besides the weights."""

    epoch: int = 0
    step: int = 0
    passes: int = 1
    """Steps of an epoch, each over several times as many images as there are; settled at the first start."""


class Network:
    """Two layers whose parameters and velocities are one flat array each, so that one allreduce does."""

    def __init__(self, seed: int) -> None:
        self.shapes = [(64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,)]
        rng = np.random.default_rng(seed)
        parts = [
            rng.normal(0, 1 / np.sqrt(shape[0]), shape) if len(shape) == 2 else np.zeros(shape) for shape in self.shapes
        ]
        self.weights = np.concatenate([part.ravel() for part in parts])
        self.velocity = np.zeros_like(self.weights)

    def parts(self, flat: np.ndarray) -> list[np.ndarray]:
        """Return views of a flat array, one per layer and bias."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), self.shapes, strict=True)]

    def logits(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the hidden layer, (n, HIDDEN), and the logits, (n, 10)."""
        first, bias, second, shift = self.parts(self.weights)
        hidden = np.maximum(0, images @ first + bias)
        return hidden, hidden @ second + shift

    def gradient(self, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the sum over the images of the gradient, flat, and of the cross entropy."""
        hidden, logits = self.logits(images)
        logits = logits - logits.max(axis=1, keepdims=True)
        chances = np.exp(logits)
        chances /= chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -np.log(chances[rows, labels] + 1e-12).sum()
        chances[rows, labels] -= 1
        back = (chances @ self.parts(self.weights)[2].T) * (hidden > 0)
        layers = [images.T @ back, back.sum(axis=0), hidden.T @ chances, chances.sum(axis=0)]
        return np.concatenate([layer.ravel() for layer in layers]), float(loss)

    def learn(self, gradient: np.ndarray) -> None:
        """Take one step of gradient descent with momentum."""
        self.velocity = MOMENTUM * self.velocity - RATE * gradient
        self.weights = self.weights + self.velocity


class Checkpoint:
    """One file, replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "checkpoint.npz"

    def load(self, network: Network) -> Progress | None:
        """Fill the network and return how far it was; None if there is no checkpoint."""
        try:
            with np.load(self.file) as saved:
                network.weights, network.velocity = saved["weights"], saved["velocity"]
                return Progress(*(int(number) for number in saved["progress"]))
        except FileNotFoundError:
            return None

    def save(self, network: Network, progress: Progress) -> None:
        """Write it whole: whoever is killed meanwhile leaves the old one."""
        draft = self.file.with_suffix(".new")
        numbers = [progress.epoch, progress.step, progress.passes]
        with draft.open("wb") as file:
            np.savez(file, weights=network.weights, velocity=network.velocity, progress=numbers)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.file)


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images (n, 64) of 0..16 and labels to train on, and one fifth of all to test with."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order], labels[order]
    fifth = len(labels) // 5
    return images[fifth:], labels[fifth:], images[:fifth], labels[:fifth]


class Training:
    """The loop; every rank runs it in step with the others."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.world = MPI.COMM_WORLD
        self.options = options
        self.network = Network(options.seed)
        self.checkpoint = Checkpoint(Path(options.folder))
        self.images, self.labels, self.test_images, self.test_labels = digits()
        self.is_told = False
        signal.signal(signal.SIGTERM, self.be_told)

    def be_told(self, *_: object) -> None:
        """Remember that it is to end; the ranks agree on it in the next step."""
        self.is_told = True

    def run(self) -> bool:
        """Train from where the last start ended; return whether all is done, False if told to end."""
        progress = self.begin()
        while progress.epoch < self.options.epochs:
            began, was_whole = time.perf_counter(), progress.step == 0
            loss = self.epoch(progress)
            if loss is None:
                self.say(f"told to end: checkpoint of epoch {progress.epoch}, step {progress.step}")
                return False
            span = time.perf_counter() - began
            if self.world.rank == 0:
                self.finish(progress, span if was_whole else None, loss)
        return True

    def begin(self) -> Progress:
        """Let rank 0 read the checkpoint, and all others have the same."""
        progress = None
        if self.world.rank == 0:
            progress = self.checkpoint.load(self.network) or Progress(passes=self.passes())
            self.say(f"{self.world.size} ranks begin at epoch {progress.epoch}, step {progress.step}")
        progress = self.world.bcast(progress)
        self.world.Bcast(self.network.weights)
        self.world.Bcast(self.network.velocity)
        return progress

    def passes(self) -> int:
        """Return how many steps one rank does in --seconds-per-epoch on this machine; at least 1."""
        if not self.options.seconds_per_epoch:
            return int(self.options.passes)
        self.gradient(0, 0, range(BLOCKS))
        began = time.perf_counter()
        for step in range(10):
            self.gradient(0, step, range(BLOCKS))
        return max(1, round(self.options.seconds_per_epoch * 10 / (time.perf_counter() - began)))

    def gradient(self, epoch: int, step: int, blocks: range) -> tuple[np.ndarray, float]:
        """Return the sums of gradient and loss over some blocks: the same ones, whichever rank asks."""
        total, loss = np.zeros_like(self.network.weights), 0.0
        for block in blocks:
            rng = np.random.default_rng([self.options.seed, epoch, step, block])
            chosen = rng.integers(len(self.labels), size=BLOCK)
            images = (self.images[chosen] + rng.normal(0, NOISE, (BLOCK, 64))) / 16
            more, more_loss = self.network.gradient(images, self.labels[chosen])
            total += more
            loss += more_loss
        return total, loss

    def epoch(self, progress: Progress) -> float | None:
        """Do the rest of an epoch and return its mean loss; None if told to end."""
        rank, size = self.world.rank, self.world.size
        blocks = range(rank * BLOCKS // size, (rank + 1) * BLOCKS // size)
        # Large steps: ranks that share a machine lose time whenever they wait for each other.
        steps = progress.passes
        loss = 0.0
        for step in range(progress.step, steps):
            gradient, own_loss = self.gradient(progress.epoch, step, blocks)
            # Whether anybody was told to end travels with the gradient, so that all stop at the same step.
            both = np.concatenate([gradient, [own_loss, float(self.is_told)]])
            self.wait(self.world.Iallreduce(MPI.IN_PLACE, both))
            self.network.learn(both[:-2] / BATCH)
            loss += both[-2] / BATCH
            progress.step = step + 1
            if both[-1] and progress.step < steps:
                if rank == 0:
                    self.checkpoint.save(self.network, progress)
                self.world.Barrier()
                return None
        progress.epoch, progress.step = progress.epoch + 1, 0
        return loss / steps

    def wait(self, request: MPI.Request) -> None:
        """Wait for the others asleep: MPI's own waiting would keep a core busy that another rank may need."""
        while not request.Test():
            time.sleep(0.001)

    def finish(self, progress: Progress, span_s: float | None, loss: float) -> None:
        """Write the checkpoint of a whole epoch, and report it."""
        self.checkpoint.save(self.network, progress)
        accuracy = float((self.network.logits(self.test_images / 16)[1].argmax(axis=1) == self.test_labels).mean())
        self.say(f"epoch {progress.epoch} of {self.options.epochs}: loss {loss:.4f}, accuracy {accuracy:.4f}")
        per_s = None if span_s is None else progress.passes * BATCH / span_s
        metrics = {"accuracy": accuracy, "loss": loss}
        report(progress.epoch, span_s, self.world.size, metrics, samples_per_s=per_s)

    def say(self, text: str) -> None:
        """Print on rank 0."""
        if self.world.rank == 0:
            print(text, flush=True)


def main() -> int:
    """Read the options and train."""
    env = os.environ
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=int(env.get("EPOCHS", "10")))
    parser.add_argument("--passes", type=int, default=100, help="steps of an epoch")
    parser.add_argument("--seconds-per-epoch", type=float, default=0.0, help="instead: about so long on one worker")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", default=env.get("VODA_JOB_DIR", "."), help="of the checkpoint")
    return 0 if Training(parser.parse_args()).run() else 143


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:
        # Otherwise the other ranks would wait for this one for ever.
        print(f"rank {MPI.COMM_WORLD.rank}: {error!r}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
