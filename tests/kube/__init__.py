"""A Kubernetes of the tests' own: the real control plane, and stand-ins for what cannot run without machines."""
