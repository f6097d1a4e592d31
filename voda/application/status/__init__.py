"""What users read on their own Kubernetes objects: Events and annotations, sent at a limited rate."""
