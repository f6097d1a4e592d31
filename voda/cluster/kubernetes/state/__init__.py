"""What the cluster shows, by job and by node."""
