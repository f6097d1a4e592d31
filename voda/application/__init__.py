"""The use cases and what they read, without HTTP: called by the API, the command line and the adapters of clusters.

In reading order: `journal` is the log that they write to and the state folded from it; `submit_job`, `change_job` and
`change_settings` record what users want, the first by the `job_rules` of the service; `lookup` finds what a name means;
`read_model` is the state that callers see, `event_feed` the log's past and its live events; `halt_all` ends a service.
"""
