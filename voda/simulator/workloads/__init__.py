"""What the simulator is given to schedule: jobs, when they come, and how they really behave."""
