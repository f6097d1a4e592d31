"""Manifests: reading them, checking them, and saying what they run and what a cluster ignores of them. Pure.

In the order of a submit: `text`, `yaml_text` and `odd_values` (from text to a mapping), `conversion` (to a typed
manifest of voda.kinds), `parse` (to a job, by `names`, `replicas` and `ignored_fields`), `local_warnings` and
`kubernetes_warnings`; `programs` says what its replicas run. `yaml_writer` writes one for people.
"""
