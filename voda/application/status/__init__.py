"""What users read on their own Kubernetes objects: Events and annotations, sent at a limited rate.

In reading order: status_reporter, announcer (Events), annotator (annotations), rate_limiter.
"""
