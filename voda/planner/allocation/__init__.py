"""How many replicas each job gets: by the policy, class by class of priority, users in turns, less what does not pay.

In reading order: `priority`, which asks `fair_share` about each class, and `resize_cost` about each growth.
"""
