"""Moves each job's object and pods towards the plan: actuator, steps (pure), stalls, hostfile_refresh."""
