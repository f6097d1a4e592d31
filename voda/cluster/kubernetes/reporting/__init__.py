"""What voda writes for users, pure: event_messages, kube_events, status_annotations."""
