"""What voda writes for users about their jobs, pure.

`event_messages` turns facts into sentences, `kube_events` and `status_annotations` into what an object carries.
"""
