"""GPUs that drivers publish as devices: `gpus` (those of nodes, by `classes`), `partitions` (that share a device)."""
