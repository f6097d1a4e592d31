"""Commands that run or configure a service."""
