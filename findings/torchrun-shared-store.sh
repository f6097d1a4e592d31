#!/bin/sh
# An agent that joins a running elastic torchrun job ends the whole job.
#
# Versions: torch 2.13.0, Python 3.11; the shared store is torch's since 2.4.
# Expected: workers start again at WORLD_SIZE 2, as --nnodes=1:2 says.
# Seen: the running worker is stopped, none starts at size 2, and a minute later both agents end with status 1. With
# TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment of all agents the job grows.
# It matters because each grow of an elastic job then costs the job. By default the agents keep the store of the first
# round for the workers too, and the one that comes later never learns its address.
. "$(dirname "$0")/torchrun-agents.sh"

cat >train.py <<'END'
import os, time
print("began at size", os.environ["WORLD_SIZE"], flush=True)
time.sleep(300)
END

grow() { # SECONDS CONDITION: start one agent, then another, and wait until the condition holds
    agent first --nnodes=1:2 --rdzv-conf=is_host=1,last_call_timeout=2 train.py
    wait_for 120 '[ "$(at_size 1)" = 1 ]'
    agent second --nnodes=1:2 --rdzv-conf=is_host=0,last_call_timeout=2 train.py
    wait_for "$1" "$2"
}

grow 200 '[ -e first.status ] && [ -e second.status ]'
expect "statuses with the shared store" "1 1" "$(cat first.status) $(cat second.status)"
expect "workers at size 2 with the shared store" 0 "$(at_size 2)"
stop_agents

export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
new_port
grow 150 '[ "$(at_size 2)" = 2 ]'
expect "workers at size 2 with a store of their own" 2 "$(at_size 2)"
