"""The connection to NATS and its streams, without knowledge of what the messages hold."""
