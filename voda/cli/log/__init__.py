"""What the commands that read or carry a log share."""
