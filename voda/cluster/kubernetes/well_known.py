"""Labels, annotations and names that voda reads and writes in a cluster.

Rule: released names are never changed; whatever is voda's own begins with `voda.dev/`.
"""

from typing import Final

MANAGED: Final = "voda.dev/managed"
"""Label: "true" on a job object that voda is to run, and on every worker pod of it."""
JOB_ID: Final = "voda.dev/job-id"
"""Annotation of the job object and, by the template, of its worker pods. An id may be too long for a label."""
RETIRED: Final = frozenset({"voda.dev/state", "voda.dev/explanation", "voda.dev/estimated-finish"})
"""Annotations that earlier versions wrote on job objects; the next write takes them away."""
REFRESH: Final = "voda.dev/poke"
"""Annotation of a launcher pod: any change of it makes the kubelet refresh the pod's volumes at once."""
WORKER_FAILURES: Final = "voda.dev/worker-failures"
"""Annotation of the job object: how many workers failed by themselves so far."""
COUNTED_FAILURES: Final = "voda.dev/counted-failures"
"""Annotation of the job object: uids of pods that are in that number and may still be there."""
FIRST_INDEX: Final = "voda.dev/first-index"
"""Annotation of pods: which replica of the job the first pod of their role is; 0 without it."""
FORMER_SCHEDULER: Final = "voda"
"""schedulerName of worker pods that earlier versions bound; nobody binds those that still wait."""
GATE: Final = "voda.dev/placement"
"""Scheduling gate of worker pods: kube-scheduler binds them once voda has named their node and lifted it."""
NODE: Final = "voda.dev/node"
"""Annotation of a worker pod whose gate was lifted: the node that it was lifted for."""
HOSTNAME: Final = "kubernetes.io/hostname"
VARIABLE: Final = "voda.dev/env."
"""Begins the annotations of worker pods that tell what else is told by variables: voda.dev/env.VODA_JOB_TOKEN."""
FIELD_MANAGER: Final = "voda"
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"

JOB_NAME: Final = "batch.kubernetes.io/job-name"
JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""Finalizer of a Job's pods, by which it counts those that end: without it, one that is taken away is no failure."""
GENERATED_LABELS: Final = frozenset({"batch.kubernetes.io/controller-uid", JOB_NAME, "controller-uid", "job-name"})
"""Labels that a server adds to the template of a Job."""
OPERATOR_JOB_NAME: Final = "training.kubeflow.org/job-name"
OPERATOR_JOB_ROLE: Final = "training.kubeflow.org/job-role"
OPERATOR_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
"""Only of training-operator (MPIJob v1, PyTorchJob): launcher, worker or master."""
