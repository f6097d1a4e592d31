"""Keeps a small network on a part of a GPU and uses it again and again, as an inference server or a notebook does.

It keeps itself to its part of the memory even where nothing else does; without a GPU it computes on the CPU.
"""

import argparse
import os
import time

import torch


def device_within_share() -> torch.device:
    """Return the GPU that voda gave, of which torch takes no more memory than this job's part."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", 0)
    memory_mib = int(os.environ.get("VODA_GPU_MEMORY_MIB", "0"))
    if memory_mib:
        whole = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, memory_mib * 2**20 / whole), device)
    return device


def main() -> None:
    """Answer so many batches of requests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=1_000)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between two batches")
    arguments = parser.parse_args()
    device = device_within_share()
    network = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).to(device)
    share = os.environ.get("VODA_GPU_MILLI", "1000")
    print(f"serves on {device} ({os.environ.get('CUDA_VISIBLE_DEVICES', 'no GPU')}), {share} milli of it", flush=True)
    with torch.inference_mode():
        for batch in range(1, arguments.batches + 1):
            network(torch.randn(256, 1024, device=device)).argmax(dim=1).sum().item()
            if batch % 100 == 0:
                print(f"{batch} batches answered", flush=True)
            time.sleep(arguments.pause)


if __name__ == "__main__":
    main()
