#!/bin/sh
# torchrun ends with 1, whatever its worker ended with.
#
# Versions: torch 2.13.0, Python 3.11.
# Expected: the worker's own status (3), 137 of a worker that was killed, 0 or 143 of one that was told to end and wrote
# its checkpoint.
# Seen: 1, each time. `exitcode : 3` and `exitcode : -9` stand in its output; of a worker that ended well after SIGTERM
# nothing says so.
# It matters because nobody can tell by the status "do not try again" from "was killed for want of memory" or "saved".
. "$(dirname "$0")/with-packages.sh"
with_packages torch==2.13.0

status_of() { # SECONDS PROGRAM: run it, with SIGTERM to torchrun once it has begun where SECONDS is not 0
    printf 'import os, signal, sys, time\n%s\n' "$2" >train.py
    rm -f began
    timeout -k 5 120 torchrun --standalone --nproc-per-node=1 train.py >out 2>err &
    pid=$!
    if [ "$1" != 0 ]; then
        left=100
        until [ -e began ] || [ $((left -= 1)) = 0 ]; do sleep 1; done
        kill -TERM "$(cat began)"
    fi
    status=0
    wait "$pid" || status=$?
}

status_of 0 'sys.exit(3)'
expect "status of a worker's 3" 1 "$status"
expect "its summary" 1 "$(grep -c 'exitcode  *: 3 ' err)"
status_of 0 'os.kill(os.getpid(), signal.SIGKILL)'
expect "status of a worker that was killed" 1 "$status"
expect "its summary" 1 "$(grep -c 'exitcode  *: -9 ' err)"
status_of 1 'signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
with open("began.new", "w") as file: file.write(str(os.getppid()))
os.rename("began.new", "began")
time.sleep(100)'
expect "what a worker did that was told to end" saved "$(cat out)"
expect "status of its torchrun" 1 "$status"
