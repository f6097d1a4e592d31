"""The API server: credentials, transport, list and watch."""
