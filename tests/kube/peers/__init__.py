"""The programs that share a cluster with voda, the real ones: kubelets as kwok plays them, and the operators of jobs.

A test asks for `world` (mpi-operator and training-operator), `world_v1` (training-operator alone, MPIJobs v1),
`jobs_world` (no operator, Indexed Jobs) or `jobsets_world` (JobSet and Trainer), of `tests.kube.fixtures`; one
`cluster` of each serves all tests of a session, one after the other. What a test can do:

- `world.submit`, `world.add_node`, `world.cordon`, `world.remove_node`: what users and administrators do;
- `world.kubelet.exit(namespace, pod, code)` and `evict`: programs end; with annotations (`stages`) they end by
  themselves, or never start;
- `world.set_ready(node, False)`, `lose_node`, `restore_node`: one node is not ready, or dead;
- `with world.cluster.kwok.held()`: all kubelets are silent, and Kubernetes notices within `cluster.GRACE_S`;
- `world.cluster.mpi_operator.crash()` (any peer): it is started again while the test waits for something.

`stages` says what kwok does; `program` is what the peers have in common, and `webhook_operator` those with webhooks;
`kwok`, `mpi_operator`, `training_operator` and `jobset` start one each on a control plane; `apart` runs a program that
insists on a port or a folder; `cluster` runs them all; `world` is what a test gets, `jobs_world` where it is about
Indexed Jobs or JobSets.
"""
