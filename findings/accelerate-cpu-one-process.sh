#!/bin/sh
# `accelerate launch --cpu --num_processes 2` starts one process.
#
# Versions: accelerate 1.15.0, torch 2.13.0, Python 3.11.
# Expected: two processes, or a word that --num_processes is not used.
# Seen: one process, which knows of no other; status 0. (With --multi_gpu in place of --cpu there are two, on CPUs too.)
# It matters because the script trains all the data in one process, and everything looks well.
. "$(dirname "$0")/with-packages.sh"
with_packages accelerate==1.15.0 torch==2.13.0

cat >train.py <<'END'
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
print("process", accelerator.process_index, "of", accelerator.num_processes)
END
expect "--cpu" "process 0 of 1" "$(timeout 300 accelerate launch --cpu --num_processes 2 train.py 2>err | grep ^process)"
expect "words on --num_processes" 0 "$(grep -c num_processes err || true)"
expect "--multi_gpu" "process 0 of 2
process 1 of 2" "$(timeout 300 accelerate launch --multi_gpu --num_processes 2 train.py 2>err | grep ^process | sort)"
