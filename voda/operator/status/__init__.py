"""What users read with kubectl: Events about their job objects, and JobStates, sent at a limited rate.

In reading order: status_reporter; event_messages (facts as sentences), kube_events and announcer (Events),
job_states and job_state_writer
(how each job stands, for `kubectl get`), rate_limiter.
"""
