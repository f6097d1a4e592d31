"""The processes of local jobs.

In reading order: `replica` (starts shims and finds them again), `shim` (the parent of one program, which outlives
voda), `rsh_agent` (what mpirun runs in place of ssh or of a rank; these two are started as scripts of their own), and
`marked` (finds and kills the processes that outlive their shim).
"""
