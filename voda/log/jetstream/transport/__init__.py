"""The way to NATS: `url`, `connection` (with `client`) and `stream`."""
