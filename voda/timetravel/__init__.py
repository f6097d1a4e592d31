"""Time travel: what the log says about any moment of the past, and whether its decisions follow from it."""
