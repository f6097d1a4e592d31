"""The way to NATS: url, client, connection, stream, blobs, errors."""
