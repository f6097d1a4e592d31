"""The composition root: builds every part of the service and wires them; nothing is decided here.

In reading order: `home` and `machine` say what `voda up` runs on; `service` builds a process that is alone or one of
several, with `leadership` (and the pure `election`) between them; `pool_setup` records a pool's first settings and
builds its loop; `log_health`, `forecasts` and `what_if` run beside, the last two in a `side_process`; `runtime` is what
every process needs, `reachability` and `usable_paths` what users of a multi-user voda can reach. `kubernetes/` does the
same on a cluster.
"""
