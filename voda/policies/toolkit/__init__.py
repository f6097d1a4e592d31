"""What policies are made of.

In reading order: `order` (whose turn it is), `allocation` (ways to hand out GPUs, and the reasons), `estimates`,
`parameters`, `levels` (Tiresias' queues).
"""
