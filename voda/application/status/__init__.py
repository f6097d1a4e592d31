"""What users read on their own Kubernetes objects: Events and annotations, sent at a limited rate.

In reading order: status_reporter; event_messages (facts as sentences), kube_events and announcer (Events),
status_annotations and annotator (annotations), rate_limiter.
"""
