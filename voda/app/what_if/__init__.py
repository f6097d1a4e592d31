"""What another policy would have made of the log, asked over the API: simulated in a process of its own.

`runner` starts and bounds the processes, `process` is what they run.
"""
