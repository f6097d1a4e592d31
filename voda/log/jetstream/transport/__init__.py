"""The way to NATS: `url`, `connection` (with `client`), `stream`, `blobs`, `errors`."""
