"""voda: the control plane for elastic deep-learning training on GPU clusters."""

__version__ = "0.1.0"
