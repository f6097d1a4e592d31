"""One module per command, found by its file: jobs, service, history."""
