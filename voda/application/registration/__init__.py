"""Jobs and their Kubernetes objects: every job has its object, every object that voda runs has its job."""
