"""How commands talk to the server."""
