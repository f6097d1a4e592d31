"""The Kubernetes cluster: MPIJobs and PyTorchJobs, whose workers are bound to nodes by voda itself."""
