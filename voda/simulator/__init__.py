"""A cluster on a virtual clock: workloads, profiles, the event heap and the report."""
