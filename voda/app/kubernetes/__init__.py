"""The service on a Kubernetes cluster: what is built only there."""
