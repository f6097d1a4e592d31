"""Stand-ins for the operators: what they do to the cluster, without what makes training programs run.

Rule: each follows what its operator really does, faults included, and shares no code with voda.
"""
