"""Moves each job's object and pods towards the desired state.

In reading order: `actuator` holds the desired states and acts, `steps` says what is missing (pure), `stalls` reports
jobs that get no further, `hostfile_refresh` makes a launcher see new hosts at once.
"""
