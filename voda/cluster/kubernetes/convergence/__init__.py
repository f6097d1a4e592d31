"""Moves each job's object and pods towards the plan."""
