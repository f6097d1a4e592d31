"""Manifests: reading them, checking them, and saying what they run and what a cluster ignores of them. Pure.

In the order of a submit: `text` and `yaml_text` with `size_limits` (from text to a mapping), `conversion` (to a typed
manifest of voda.kinds), `parse` (to a job, by `names`, `replica_bounds`, `resources` and `ignored_fields`),
`local_warnings` and `kubernetes_warnings`; `programs` and `variables` say what its replicas run.
"""
