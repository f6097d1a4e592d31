"""The composition root: builds every part of the service and wires them; nothing is decided here.

In reading order: `options` and `home` say what `voda up` runs on, `machine` which devices there are; `service` builds
one process and `replica` one of several, with `leadership` (and the pure `election`) between them; `pool_loop_factory`
builds the loop of a pool, `initial_settings` its first settings; `snapshots` and `forecaster` (with `forecast_process`)
run beside; `runtime` is what every process needs. `kubernetes/` does the same on a cluster.
"""
