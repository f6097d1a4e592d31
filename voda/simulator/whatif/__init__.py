"""What if another policy had decided, and what the live jobs can expect.

`what_if` simulates a recorded log again and `comparison` compares; it takes the speed of jobs from `hindsight` (with
`epoch_times`), their progress from `job_replay`. `forecast` simulates the live jobs.
"""
