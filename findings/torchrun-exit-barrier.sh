#!/bin/sh
# A torchrun agent whose worker is done waits for a peer that was killed: five minutes, holding its GPUs.
#
# Versions: torch 2.13.0, Python 3.11.
# Expected: its worker has ended with 0, and the job's only other agent is dead: it ends with 0 in a moment.
# Seen: it waits in its exit barrier (300 s in all, measured once as 304.1 s; this script looks after 60 s), and SIGTERM
# does not end it within 10 s.
# It matters because a job that is done holds its GPUs, and a stop takes its whole grace.
. "$(dirname "$0")/torchrun-agents.sh"
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

cat >train.py <<'END'
import os, sys, time
with open(sys.argv[1] + ".pids", "w") as file:
    file.write(f"{os.getppid()} {os.getpid()}")
print("began at size", os.environ["WORLD_SIZE"], flush=True)
deadline = time.monotonic() + 300
while time.monotonic() < deadline and not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
print("done", flush=True)
END
waits() {
    [ -e first.status ] && echo no || echo yes
}

agent first --nnodes=2 --rdzv-conf=is_host=1 train.py finish
agent second --nnodes=2 --rdzv-conf=is_host=0 train.py never
wait_for 120 '[ "$(at_size 2)" = 2 ]'
# The agent and its worker.
kill -KILL $(cat never.pids)
touch finish
wait_for 60 'grep -q done first.out'
expect "workers that are done" 1 "$(cat ./*.out | grep -c done)"
wait_for 60 '[ -e first.status ]'
expect "whether its agent waits 60 s later" yes "$(waits)"
kill -TERM "$(cut -d ' ' -f 1 finish.pids)"
wait_for 10 '[ -e first.status ]'
expect "whether it waits 10 s after SIGTERM" yes "$(waits)"
