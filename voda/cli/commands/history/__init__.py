"""Commands that read a log or simulate one."""
