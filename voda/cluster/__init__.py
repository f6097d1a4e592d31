"""The port to what runs the workers (`port`), and its adapters: `local/` (this machine) and `kubernetes/`."""
