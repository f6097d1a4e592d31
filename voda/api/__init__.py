"""The HTTP API: routes, schemas, access, streams."""
