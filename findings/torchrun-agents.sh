# Sourced by scripts with several agents of torchrun on one machine, which meet at one port. Nothing of them is left in
# the end.
. "$(dirname "$0")/with-packages.sh"
with_packages torch==2.13.0
trap 'stop_agents; rm -rf "$HERE"' EXIT

agent() { # NAME OPTIONS... PROGRAM...: start one; NAME.out, NAME.err, and NAME.status once it has ended
    name=$1
    shift
    (
        status=0
        timeout -k 5 400 torchrun --nproc-per-node=1 --rdzv-backend=c10d --rdzv-id=job \
            --rdzv-endpoint="127.0.0.1:$port" "$@" >"$name.out" 2>"$name.err" &
        echo "$!" >"$name.pid"
        wait "$!" || status=$?
        echo "$status" >"$name.status"
    ) &
}

stop_agents() {
    for file in *.pid; do
        [ -e "$file" ] && kill -TERM "$(cat "$file")" 2>/dev/null || true
    done
    wait
    rm -f ./*.pid ./*.out ./*.status
}

wait_for() { # SECONDS CONDITION: no longer than so many
    left=$1
    until eval "$2"; do
        [ $((left -= 1)) -gt 0 ] || return 0
        sleep 1
    done
}

at_size() { # SIZE: how many workers have begun at it
    cat ./*.out | grep -c "began at size $1" || true
}

new_port() {
    port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
}
new_port
