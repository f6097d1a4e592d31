"""The use cases and what they read, without HTTP: called by the API, the command line and the adapters of clusters.

In reading order: `backend` holds the ports; `submit_job`, `change_job` and `change_settings` record what users want;
`lookup` finds what a name means; `read_model` is the state that callers see, `event_feed` the log's past and its live
events; `halt_all` ends a service. The objects of a Kubernetes cluster are kept in step with the log in voda/operator/.
"""
