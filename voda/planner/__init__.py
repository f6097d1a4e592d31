"""The planner: how many GPUs each job gets, on which nodes, and why; pure."""
