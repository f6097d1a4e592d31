"""The composition root: builds every part of the service and wires them; nothing is decided here.

In reading order: `home` and `machine` say what `voda up` runs on; `service` builds a process that is alone or one of
several, with `leadership` (and the pure `election`) between them; `pool_setup` records a pool's first settings and
builds its loop; `forecaster` (with `forecast_process`) and `log_health` run beside; `runtime` is what every process
needs, `reachability` and `usable_paths` what users of a multi-user voda can reach. `kubernetes/` does the same on a
cluster.
"""
