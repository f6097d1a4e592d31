#!/bin/sh
# `accelerate launch` takes torchrun's variables PET_NNODES and PET_RDZV_ENDPOINT, and overrides PET_RDZV_BACKEND.
#
# Versions: accelerate 1.15.0, torch 2.13.0, Python 3.11.
# Expected: under PET_NNODES=1:2 and PET_RDZV_BACKEND=c10d one agent begins alone after the last call, as torchrun does.
# Seen: the backend is static, whatever the variable says: it waits for a second agent, and prints nothing; with
# --rdzv_backend c10d on its command line it begins alone. (PET_MAX_RESTARTS and PET_NPROC_PER_NODE are overridden too.)
# It matters because operators tell elastic jobs by these variables what to do: such a job hangs with an empty log.
. "$(dirname "$0")/with-packages.sh"
with_packages accelerate==1.15.0 torch==2.13.0

echo 'print("began")' >train.py
port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export PET_NNODES=1:2 PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT="127.0.0.1:$port" PET_RDZV_ID=job
export PET_RDZV_CONF=last_call_timeout=1 PET_NODE_RANK=0
begins() { # LIMIT_S COMMAND...
    timeout -k 10 "$@" >out 2>err || true
    sort -u out | grep began || echo "nothing"
}
expect "torchrun" began "$(begins 240 torchrun --nproc-per-node=2 train.py)"
expect "accelerate with --rdzv_backend c10d" began \
    "$(begins 240 accelerate launch --multi_gpu --num_processes 2 --rdzv_backend c10d train.py)"
expect "accelerate within 90 s" nothing "$(begins 90 accelerate launch --multi_gpu --num_processes 2 train.py)"
