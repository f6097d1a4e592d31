"""What voda writes for users: Kubernetes Events and annotations; pure."""
