"""Commands about jobs of a running server."""
