"""The log in NATS JetStream."""
