#!/bin/sh
# One torchrun agent that fails for good closes the rendezvous of the job for everybody.
#
# Versions: torch 2.13.0, Python 3.11.
# Expected: another agent takes its place (--nnodes=1:2), or the job ends.
# Seen: the other agent trains on alone, as if nothing had happened; an agent that comes in place of the failed one ends
# with status 1 (RendezvousClosedError); and the healthy one, with 5 of 5 restarts left, ends with 1 at its worker's next
# failure.
# It matters because who starts a failed worker anew has to start all agents of the job anew.
. "$(dirname "$0")/torchrun-agents.sh"
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # without it no agent could join at all

cat >train.py <<'END'
import os, sys, time
print("began at size", os.environ["WORLD_SIZE"], flush=True)
deadline = time.monotonic() + 300
while time.monotonic() < deadline:
    if os.path.exists(sys.argv[1]):
        sys.exit(3)
    time.sleep(0.1)
END

agent healthy --nnodes=1:2 --rdzv-conf=is_host=1 --max-restarts=5 train.py fail-later
agent failing --nnodes=1:2 --rdzv-conf=is_host=0 --max-restarts=0 train.py fail
wait_for 120 '[ "$(at_size 2)" = 2 ]'
touch fail
wait_for 60 '[ -e failing.status ]'
expect "status of the agent whose worker failed" 1 "$(cat failing.status)"
agent replacement --nnodes=1:2 --rdzv-conf=is_host=0 train.py never
wait_for 120 '[ -e replacement.status ]'
expect "status of the one in its place" 1 "$(cat replacement.status)"
expect "its reason" RendezvousClosedError "$(grep -o RendezvousClosedError replacement.err | head -n 1)"
expect "whether the healthy one has ended" no "$([ -e healthy.status ] && echo yes || echo no)"
touch fail-later
wait_for 120 '[ -e healthy.status ]'
expect "its status at the first failure of 5 allowed" 1 "$(cat healthy.status)"
expect "starts of its worker" 1 "$(grep -c began healthy.out)"
