"""Train a small network on scikit-learn's digits with PyTorch, so that torchrun can resize it at any moment.

Run by torchrun, whoever starts that: the workers of a PyTorchJob, or `voda run --launcher torchrun`. gloo on CPUs,
nccl on GPUs. What makes it elastic: a SIGTERM to any process makes all stop at the same step; rank 0 writes a
checkpoint to VODA_JOB_DIR, whole or not at all; a start at another size goes on from it.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from voda.report import report

BATCH = 1440
"""Images of a step, over all processes; the same images whatever their number."""
NOISE = 2.0
SIGNAL_S = 2.0
"""How long a process that learned of an end from the others waits for a signal of its own."""


class Training:
    """The loop; every process runs it in step with the others."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options = options
        self.device = device
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.file = Path(options.folder) / "checkpoint.pt"
        torch.manual_seed(options.seed)
        network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
        self.network = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.2, momentum=0.9)
        self.epoch, self.step = 0, 0
        images, labels = load_digits(return_X_y=True)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        self.images = torch.tensor(images, dtype=torch.float32)[order]
        self.labels = torch.tensor(labels)[order]
        self.tests = len(labels) // 5
        self.is_told = False
        signal.signal(signal.SIGTERM, self.be_told)

    def be_told(self, *_: object) -> None:
        """Remember that it is to end; the processes agree on it in the next step."""
        self.is_told = True

    def run(self) -> bool:
        """Train from where the last start ended; return False if told to end before the work was done."""
        self.load()
        self.say(f"{self.size} processes begin at epoch {self.epoch}, step {self.step}")
        while self.epoch < self.options.epochs:
            began, was_whole = time.perf_counter(), self.step == 0
            loss = self.train_epoch()
            if loss is None:
                self.say(f"told to end: checkpoint of epoch {self.epoch}, step {self.step}")
                return False
            span_s = time.perf_counter() - began
            if self.rank == 0:
                self.finish(span_s if was_whole else None, loss)
        return True

    def train_epoch(self) -> float | None:
        """Do the rest of an epoch and return its mean loss; None if told to end."""
        total = 0.0
        for step in range(self.step, self.options.passes):
            images, labels = self.share(step)
            self.optimizer.zero_grad()
            # DistributedDataParallel averages over processes, whose shares may differ by an image.
            loss = cross_entropy(self.network(images), labels, reduction="sum") * self.size / BATCH
            loss.backward()
            self.optimizer.step()
            both = torch.tensor([loss.item() / self.size, float(self.is_told)], device=self.device)
            dist.all_reduce(both)
            total += both[0].item()
            self.step = step + 1
            if both[1].item() and self.step < self.options.passes:
                if self.rank == 0:
                    self.save()
                dist.barrier()
                return None
        self.epoch, self.step = self.epoch + 1, 0
        return total / self.options.passes

    def share(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this process's part of a step's batch."""
        rng = torch.Generator().manual_seed(self.options.seed * 1_000_003 + self.epoch * 10_007 + step)
        chosen = torch.randint(self.tests, len(self.labels), (BATCH,), generator=rng)
        images = (self.images[chosen] + NOISE * torch.randn((BATCH, 64), generator=rng)) / 16
        rows = slice(self.rank * BATCH // self.size, (self.rank + 1) * BATCH // self.size)
        return images[rows].to(self.device), self.labels[chosen][rows].to(self.device)

    def finish(self, span_s: float | None, loss: float) -> None:
        """Write the checkpoint of a whole epoch, and report it."""
        self.save()
        with torch.no_grad():
            found = self.network.module(self.images[: self.tests].to(self.device) / 16).argmax(dim=1).cpu()
        accuracy = (found == self.labels[: self.tests]).float().mean().item()
        self.say(f"epoch {self.epoch} of {self.options.epochs}: loss {loss:.4f}, accuracy {accuracy:.4f}")
        per_s = None if span_s is None else self.options.passes * BATCH / span_s
        report(self.epoch, span_s, self.size, {"accuracy": accuracy, "loss": loss}, samples_per_s=per_s)

    def load(self) -> None:
        """Go on from the checkpoint, if there is one; every process reads it."""
        if not self.file.exists():
            return
        saved: dict[str, Any] = torch.load(self.file, map_location=self.device, weights_only=True)
        self.network.module.load_state_dict(saved["network"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.epoch, self.step = saved["epoch"], saved["step"]

    def save(self) -> None:
        """Write the checkpoint whole: whoever is killed meanwhile leaves the old one."""
        state = {
            "network": self.network.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": self.epoch,
            "step": self.step,
        }
        draft = self.file.with_suffix(".new")
        torch.save(state, draft)
        draft.replace(self.file)

    def say(self, text: str) -> None:
        """Print on rank 0."""
        if self.rank == 0:
            print(text, flush=True)


def main() -> int:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("EPOCHS", "10")))
    parser.add_argument("--passes", type=int, default=100, help="an epoch goes over the images so often")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", default=os.environ.get("VODA_JOB_DIR", "."), help="of the checkpoint")
    options = parser.parse_args()
    torch.set_num_threads(1)
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if has_gpu else "gloo")
    training = Training(options, device)
    if training.run():
        dist.destroy_process_group()
        return 0
    # An end with 0 would tell torchrun that all is done. Who has had no signal yet will get one where the job grows;
    # where it shrinks, this end is what makes torchrun gather those that are left.
    deadline = time.perf_counter() + SIGNAL_S
    while not training.is_told and time.perf_counter() < deadline:
        time.sleep(0.05)
    return 143


if __name__ == "__main__":
    sys.exit(main())
