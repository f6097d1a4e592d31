"""Shared GPUs: what is left of each, and which one the next part gets.

`book` is for whoever gives parts one after the other: plans of jobs, and a machine that starts them. `rating` rates
nodes for pods; it loads numpy, and so has a door of its own.

Rule: these names and those of `rating` are the doors; others import nothing else from here.
"""

from voda.sharing.book import OpenGpus

__all__ = ["OpenGpus"]
