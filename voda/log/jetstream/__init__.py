"""A log in NATS JetStream: `store`, over `log/` (events as messages) and `transport/` (connection and streams)."""
