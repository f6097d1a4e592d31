#!/bin/sh
# torchrun ignores a key of --rdzv-conf that it does not know, without a word; `heartbeat`, of its own documentation,
# is one.
#
# Versions: torch 2.13.0, Python 3.11.
# Expected: a refusal or a warning; and that the documented name works.
# Seen: `nonsense=1` and `heartbeat=soon` run as if they were not there. The name that is read is heartbeat_timeout:
# `heartbeat_timeout=soon` is refused, since all values are whole seconds; so are 2.5 and 0.5.
# It matters because a setting with a typo, or of an old tutorial, is never heard of.
. "$(dirname "$0")/with-packages.sh"
with_packages torch==2.13.0
echo 'print("trained")' >train.py

run() { # CONF: status and output of a run with it
    status=0
    timeout -k 5 120 torchrun --nnodes=1 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:0 \
        --rdzv-conf="$1" train.py >out 2>err || status=$?
    echo "$status $(cat out)"
}

expect "unknown keys" "0 trained" "$(run nonsense=1,heartbeat=soon)"
expect "words on them" 0 "$(grep -c -e nonsense -e heartbeat err || true)"
expect "heartbeat_timeout=soon" "1 " "$(run heartbeat_timeout=soon)"
expect "heartbeat_timeout=2.5" "1 " "$(run heartbeat_timeout=2.5)"
