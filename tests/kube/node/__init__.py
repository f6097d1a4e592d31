"""Real nodes: a cluster of two kubelets with containerd, CoreDNS and kube-proxy, and voda on it as its chart says.

`dockerfile` builds an image from a Dockerfile on this machine as its base; `cluster` starts and ends the cluster of
../shared/kube/node; `installation` is voda on it, as docs/install-kubernetes.md says; `train.py` is the program of its
jobs, `train.Dockerfile` their image.
"""
