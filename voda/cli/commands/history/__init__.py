"""Commands that read a log or simulate one: `log`, `replay`, `timeline`, `simulate`, `policies`."""
