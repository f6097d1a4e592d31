"""The elastic launcher: keeps a program running on the hosts there are, whatever their number.

Rule: what to do next is decided in `steps`, which is pure; the other modules find hosts and handle processes.
"""
