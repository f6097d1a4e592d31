"""Use cases and the read model, without HTTP: what the API, the command line and Kubernetes adoption call."""
