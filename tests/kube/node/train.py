"""A small elastic training, as torchrun starts it: what was learnt goes on from the replica that has the most of it.

Checkpoints are in the folder CHECKPOINTS, or in each replica's own /tmp; a file /tmp/end ends the training.
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from voda.report import report

FOLDER = os.environ.get("CHECKPOINTS", "/tmp")  # noqa: TID251 - a user's program
CHECKPOINT, END = f"{FOLDER}/checkpoint.pt", "/tmp/end"
STEPS_OF_AN_EPOCH = 50
STEP_S = 0.1


def main() -> None:
    """Train until somebody says that it is enough."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = restored(model)
    torch.manual_seed(dist.get_rank())
    while True:
        inputs = torch.randn(16, 4)
        loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for gradient in [each.grad for each in model.parameters() if each.grad is not None]:
            gradient /= dist.get_world_size()
            dist.all_reduce(gradient)
        optimizer.step()
        step += 1
        if dist.get_rank() == 0:
            torch.save((step, model.state_dict()), CHECKPOINT + ".new")
            os.replace(CHECKPOINT + ".new", CHECKPOINT)
        at = time.time()  # noqa: TID251 - a user's program
        line = (
            f"{at:.3f} step {step} of {dist.get_world_size()} workers, rank {dist.get_rank()}, loss {loss.item():.4f}\n"
        )
        sys.stdout.write(line)
        sys.stdout.flush()
        if dist.get_rank() == 0 and step % STEPS_OF_AN_EPOCH == 0:
            report(epoch=step / STEPS_OF_AN_EPOCH, workers=dist.get_world_size())
        if most(float(os.path.exists(END))):
            break
        time.sleep(STEP_S)
    dist.barrier()


def restored(model: torch.nn.Module) -> int:
    """Give all replicas the newest checkpoint that any of them has, and return its step."""
    step = 0
    if os.path.exists(CHECKPOINT):
        step, state = torch.load(CHECKPOINT)
        model.load_state_dict(state)
    newest = int(most(step))
    source = int(most(dist.get_rank() if step == newest else -1))
    for parameter in model.parameters():
        dist.broadcast(parameter.data, source)
    return newest


def most(value: float) -> float:
    """Return the largest value of all replicas."""
    tensor = torch.tensor([float(value)])
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor.item())


main()
